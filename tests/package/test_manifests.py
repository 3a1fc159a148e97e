"""The Kubernetes manifests agree with the programs, the packages and each other.

Every program and file in them is in our packages, every flag in --help, every
mount has its volume, daemon, proxy and engine share folder, user and namespaces,
and the fleet is one that fineserve-proxy --check accepts. The replicas that an
autoscaler may run are those in their fleet, and it follows a metric that there is.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from typing import Any

SOURCE = pathlib.Path(__file__).parent.parent.parent
FOLDER = SOURCE / "tools/deploy/kubernetes"
sys.path.insert(0, str(SOURCE / "tests/manual"))

import manual_matches_help  # noqa: E402

SHIM_FOLDER = "/usr/lib/x86_64-linux-gnu/fineserve"
OF_DEBIAN = {"/usr/bin/install", "/bin/cp", "/bin/sleep"}  # coreutils
VERSION = re.search(
    r"project\(FineServe VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()
)[1]
Object = dict[str, Any]


def packaged_files(build: pathlib.Path) -> set[str]:
    subprocess.run(
        ["cmake", "--build", build, "--target", "package_files"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with tempfile.TemporaryDirectory() as root:
        for component in ("fineserve", "proxy", "vllm", "dev"):
            subprocess.run(
                ["cmake", "--install", build, "--component", component]
                + ["--prefix", "/usr"],
                env=os.environ | {"DESTDIR": root},
                check=True,
                stdout=subprocess.DEVNULL,
            )
        return {
            "/" + str(path.relative_to(root))
            for path in pathlib.Path(root).glob("**/*")
        }


def environment_of(container: Object) -> dict[str, str]:
    """A value that the cluster fills in is empty here."""
    return {e["name"]: e.get("value", "") for e in container.get("env", [])}


class Check:
    def __init__(self, bin_: pathlib.Path, files: set[str]) -> None:
        self.bin = bin_
        self.files = files
        self.mistakes: list[str] = []

    def that(self, holds: bool, mistake: str) -> None:
        if not holds:
            self.mistakes.append(mistake)

    def command(self, where: str, words: list[str]) -> None:
        """One of our programs with flags that it has."""
        self.that(words[0] in self.files | OF_DEBIAN, f"{where}: no {words[0]}")
        program = pathlib.Path(words[0]).name
        if program not in manual_matches_help.PROGRAMS:
            return
        line = [str(self.bin / program)]
        if program == "fsctl":
            line.append(words[1])
        known = manual_matches_help.options_of(manual_matches_help.help_of(line))
        if program == "fsctl":
            known |= manual_matches_help.options_of(
                manual_matches_help.help_of(line[:1])
            )
        for word in words:
            flag = word.split("=")[0]
            if flag.startswith("--"):
                self.that(flag in known, f"{where}: {program} has no {flag}")

    def pod(self, name: str, spec: Object) -> None:
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        user = spec["securityContext"]["runAsUser"]
        self.that(user == 10100, f"{name}: user {user}, not the others'")
        self.that(spec.get("hostNetwork", False), f"{name}: needs hostNetwork")
        for container in spec.get("initContainers", []) + spec["containers"]:
            where = f"{name}/{container['name']}"
            for mount in container.get("volumeMounts", []):
                self.that(mount["name"] in volumes, f"{where}: {mount['name']}?")
            if not container["image"].startswith("fineserve:"):
                continue
            self.that(
                container["image"] == f"fineserve:{VERSION}",
                f"{where}: {container['image']}, but this is {VERSION}",
            )
            self.command(where, container["command"] + container.get("args", []))
            probe = container.get("readinessProbe", {}).get("exec")
            if probe:
                self.command(f"{where} probe", probe["command"])
            stop = container.get("lifecycle", {}).get("preStop")
            if stop:
                line = shlex.split(stop["exec"]["command"][-1].split(";")[0])
                self.command(f"{where} preStop", line)
        self.runtime(name, spec, volumes)

    def runtime(self, name: str, spec: Object, volumes: Object) -> None:
        """The folder of the socket is the host's, at the path that is set."""
        folder = volumes["runtime"]["hostPath"]["path"]
        for container in spec["containers"]:
            mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
            environment = environment_of(container)
            arguments = container.get("args", [])
            told = environment.get("FINESERVE_RUNTIME_DIR")
            if "--runtime-dir" in arguments:
                told = arguments[arguments.index("--runtime-dir") + 1]
            self.that(
                folder == mounts["runtime"] == told == "/run/fineserve",
                f"{name}: runtime folder {folder}, {mounts['runtime']}, {told}",
            )

    def accepted(self, text: str) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            done = subprocess.run(
                [self.bin / "fineserve-proxy", "--fleet", file.name, "--check"],
                capture_output=True,
                text=True,
            )
        self.that(done.returncode == 0, f"fleet: {done.stderr}")

    def scaled(self, text: str, pods: Object, hpa: Object, keda: Object) -> None:
        """The fleet has each pod that there may be, and both autoscalers its metric."""
        self.accepted(text)
        name = pods["metadata"]["name"]
        engines = tomllib.loads(text)["engine"]
        names = [engine["name"] for engine in engines]
        self.that(names == [f"{name}-{i}" for i in range(len(names))], f"{names}")
        vllm, leave = pods["spec"]["template"]["spec"]["containers"]
        first = re.search(r"\$\(\((\d+) \+ NUMBER\)\)", vllm["command"][-1])
        for number, engine in enumerate(engines):
            port = int(first[1]) + number if first else 0
            self.that(engine["url"].endswith(f":{port}"), f"{engine['url']}: {port}")
            self.that(engine.get("start") == "scaled", f"{engine['name']}: start")
            self.that(
                f"--served-model-name {engine['model']} " in vllm["command"][-1],
                f"{engine['name']}: its model's name",
            )
        grace = pods["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        words = shlex.split(leave["lifecycle"]["preStop"]["exec"]["command"][-1])
        wait = int(words[words.index("--wait") + 1].rstrip(";"))
        self.that(wait < grace, f"preStop waits {wait} s of {grace} s")
        target = {"apiVersion": "apps/v1", "kind": pods["kind"], "name": name}
        trigger = keda["spec"]["triggers"][0]["metadata"]
        metric = hpa["spec"]["metrics"][0]["external"]["metric"]
        known = (SOURCE / "daemon/metrics/metric_list.cc").read_text()
        self.that(f'"{metric["name"]}"' in known, f"no metric {metric['name']}")
        model = metric["selector"]["matchLabels"]["model"]
        self.that(model == engines[0]["model"], f"hpa: model {model}")
        self.that(
            f'{metric["name"]}{{model="{model}"}}' in trigger["query"],
            f"keda: {trigger['query']}",
        )
        for spec, most in (
            (hpa["spec"], hpa["spec"]["maxReplicas"]),
            (keda["spec"], keda["spec"]["maxReplicaCount"]),
        ):
            self.that(spec["scaleTargetRef"] == target, f"{spec['scaleTargetRef']}")
            self.that(most == len(engines), f"{most} of {len(engines)} replicas")

    def fleet(self, text: str, engine: Object) -> None:
        self.accepted(text)
        served = tomllib.loads(text)["engine"][0]
        container = engine["spec"]["containers"][0]
        command = container["command"]
        environment = environment_of(container)
        port = command[command.index("--port") + 1]
        self.that(served["url"].endswith(f":{port}"), f"fleet: not at port {port}")
        name = command[command.index("--served-model-name") + 1]
        self.that(name == served["model"], f"fleet: the engine serves {name}")
        self.that(
            environment["FINESERVE_ENGINE"] == served["name"], "fleet: engine's name"
        )
        shim = environment["LD_PRELOAD"].replace("/shim", SHIM_FOLDER)
        self.that(shim in self.files, f"vllm: no {shim}")
        told = (SOURCE / "scripts/docs/reference.md").read_text()
        for variable in environment:
            if variable.startswith("FINESERVE_"):
                self.that(variable in told, f"vllm: reference.md has no {variable}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    try:
        import yaml
    except ImportError:
        print("SKIP: no python3-yaml here: run scripts/setup --package")
        return 77
    objects: dict[str, Object] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for found in yaml.safe_load_all(path.read_text()):
            objects[f"{found['kind']}/{found['metadata']['name']}"] = found
    check = Check(arguments.build / "bin", packaged_files(arguments.build))
    daemon = objects["DaemonSet/fineserved"]["spec"]["template"]["spec"]
    engine = objects["Pod/qwen3-8b"]
    check.pod("fineserved", daemon)
    check.pod(
        "fineserve-proxy",
        objects["Deployment/fineserve-proxy"]["spec"]["template"]["spec"],
    )
    check.pod("qwen3-8b", engine["spec"])
    for name, spec in (("fineserved", daemon), ("qwen3-8b", engine["spec"])):
        check.that(spec.get("hostPID", False), f"{name}: needs hostPID")
    check.fleet(objects["ConfigMap/fleet"]["data"]["fleet.toml"], engine)
    chat = objects["StatefulSet/chat"]
    check.pod("chat", chat["spec"]["template"]["spec"])
    check.scaled(
        objects["ConfigMap/fleet-of-scaled"]["data"]["fleet.toml"],
        chat,
        objects["HorizontalPodAutoscaler/chat"],
        objects["ScaledObject/chat"],
    )
    adapter = objects["ConfigMap/prometheus-adapter-rule"]["data"]["rules.yaml"]
    named = yaml.safe_load(adapter)["externalRules"][0]["name"]["as"]
    wants = objects["HorizontalPodAutoscaler/chat"]["spec"]["metrics"][0]["external"]
    check.that(named == wants["metric"]["name"], f"prometheus-adapter: {named}")
    for mistake in check.mistakes:
        print(mistake)
    print(f"{len(objects)} objects, {len(check.mistakes)} mistakes")
    return 1 if check.mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
