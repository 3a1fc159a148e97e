"""Runs Helm, and reads the objects of our chart."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

SOURCE = pathlib.Path(__file__).parent.parent.parent
FOLDER = SOURCE / "tools/deploy/kubernetes"
CHART = FOLDER / "fineserve"
TOOLS = pathlib.Path(
    os.environ.get("FINESERVE_HELM_DIR", pathlib.Path.home() / ".cache/fineserve/helm")
)
Object = dict[str, Any]


def why_not() -> str:
    """Returns why these tests cannot run here; empty if they can."""
    try:
        import yaml  # noqa: F401
    except ImportError:
        return "no python3-yaml here: run scripts/setup --package"
    if not (TOOLS / "bin/helm").exists():
        return f"no helm in {TOOLS}: run scripts/setup --package"
    return ""


def helm(*words: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOLS / "bin/helm", *words], capture_output=True, text=True, timeout=120
    )


def template(
    values: list[pathlib.Path], more: Object | None = None, chart: Any = CHART
) -> subprocess.CompletedProcess[str]:
    """The release "ours" in the namespace "models", of values files and, before
    those, values."""
    words = [word for path in values for word in ("--values", path)]
    for key, value in (more or {}).items():
        words += ["--set-json", f"{key}={json.dumps(value)}"]
    return helm("template", "ours", chart, "--namespace", "models", *words)


def objects_in(text: str) -> dict[str, Object]:
    """Returns the objects in Helm's output by kind and name. The output
    includes the chart's comments."""
    import yaml

    found = [o for o in yaml.safe_load_all(text) if o]
    named = {f"{o['kind']}/{o['metadata']['name']}": o for o in found}
    assert len(named) == len(found), "two objects have one name"
    return named


def pods_of(objects: dict[str, Object]) -> dict[str, Object]:
    """Returns the specs of the pods that the objects make, by the objects'
    names."""
    return {
        name: o["spec"]["template"]["spec"]
        for name, o in objects.items()
        if "template" in o.get("spec", {})
    }


def install_packages(build: pathlib.Path, root: pathlib.Path) -> None:
    """Installs the contents of our Debian packages under `root`."""
    subprocess.run(
        ["cmake", "--build", build, "--target", "package_files"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for component in ("fineserve", "proxy", "vllm", "dev"):
        subprocess.run(
            ["cmake", "--install", build, "--component", component]
            + ["--prefix", "/usr"],
            env=os.environ | {"DESTDIR": str(root)},
            check=True,
            stdout=subprocess.DEVNULL,
        )


def environment_of(container: Object, pod: str) -> dict[str, str]:
    """Returns the container's variables in a pod of this name. A variable that
    comes from a Secret is empty."""
    variables = {}
    for variable in container.get("env", []):
        field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        named = pod if field == "metadata.name" else ""
        variables[variable["name"]] = variable.get("value", named)
    return variables


def run(summary: str, check: Callable[[pathlib.Path, pathlib.Path], int]) -> int:
    """A test's main: `check` gets the build folder and the folder with our
    packages' contents."""
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if why := why_not():
        print(f"SKIP: {why}")
        return 77
    with tempfile.TemporaryDirectory() as root:
        install_packages(arguments.build, pathlib.Path(root))
        return check(arguments.build, pathlib.Path(root))
