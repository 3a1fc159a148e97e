"""Compares the newest vLLM on the package index with what the plugin knows.

    PYTHON_OF_THE_NEWEST_ENVIRONMENT next_release.py [VERSION]

No engine starts and nothing is installed: the release's sources are imported
with the packages of this interpreter's environment, and its seams
(doubles/seams.py) are compared with those of the newest version that has been
recorded. Exits with 0 if all are alike, or the version is a recorded one.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
SIGNATURES = HERE / "doubles/signatures"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]

RECORD = "import json, seams; print(json.dumps(seams.record()))"


def newest() -> str:
    """By the index."""
    done = subprocess.run(
        [*PIP, "index", "versions", "vllm"],
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.search(r"^vllm \((.+)\)$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    return found[1]


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def fetch(version: str, folder: pathlib.Path) -> None:
    """Downloads the wheel of a version and extracts its Python sources."""
    subprocess.run(
        [*PIP, "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        + ["--dest", folder, f"vllm=={version}"],
        check=True,
    )
    (wheel,) = folder.glob("vllm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        sources = [n for n in archive.namelist() if n.endswith(".py")]
        archive.extractall(folder / "vllm", sources)
    wheel.unlink()


def seams_of(folder: pathlib.Path) -> dict[str, dict[str, object]]:
    path = [str(folder / "vllm"), str(HERE / "doubles")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path}; {RECORD}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    if done.returncode != 0:
        raise SystemExit(
            f"a seam is not there any longer: {done.stderr.splitlines()[-1]}"
        )
    seams: dict[str, dict[str, object]] = json.loads(
        done.stdout.splitlines()[-1]
    )
    return seams


def said(seam: object) -> str:
    """Returns the names of a function's parameters; those with a default are in
    brackets."""
    if not isinstance(seam, list):
        return str(seam)
    return ", ".join(f"[{it[0]}]" if it[2] else it[0] for it in seam)


def differences(
    known: dict[str, dict[str, object]], found: dict[str, dict[str, object]]
) -> list[str]:
    """One line for each seam."""
    return [
        f"{name}: {said(known[part].get(name))} is now "
        f"{said(found[part].get(name))}"
        for part in known
        for name in sorted(known[part].keys() | found[part].keys())
        if known[part].get(name) != found[part].get(name)
    ]


def main() -> None:
    asked = sys.argv[1:]
    version = asked[0] if asked else newest()
    recorded = sorted((path.stem for path in SIGNATURES.iterdir()), key=numbers)
    if not asked and version in recorded:
        print(f"vLLM {version} is the newest, and is supported")
        return
    known = [it for it in recorded if numbers(it) < numbers(version)][-1]
    with tempfile.TemporaryDirectory() as folder:
        fetch(version, pathlib.Path(folder))
        found = seams_of(pathlib.Path(folder))
    differ = differences(
        json.loads((SIGNATURES / f"{known}.json").read_text()), found
    )
    print(f"vLLM {version} against {known}: {len(differ)} seams differ")
    print(*differ, sep="\n")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
