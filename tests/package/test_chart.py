"""The Helm chart agrees with Kubernetes, the programs, the packages and itself.

Its objects are valid for the oldest Kubernetes that it supports and for the
newest; every program and file in it is in our packages, every flag in --help,
every mount has its volume; daemon, proxy and engines share folder, user and
namespaces. Its fleet is one that fineserve-proxy accepts, its engines are started
as `fsctl up` would start them, and its autoscalers follow a metric that there is.
Wrong values are refused in a line that says what to do, and an upgrade replaces the
pods that it must, and no others. No cluster is asked.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib

import chart
from chart import CHART, FOLDER, SOURCE, Object
from chart_cases import CASES, EVERY_KEY, EVERY_SECTION, REFUSED, UPGRADES, model

sys.path.insert(0, str(SOURCE / "tests/manual"))

import manual_matches_help  # noqa: E402

OF_DEBIAN = {"/usr/bin/install", "/bin/sh"}
VERSION = re.search(
    r"project\(FineServe VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()
)[1]
KUBERNETES = ("1.28.0", "1.37.0")
# Kinds whose definitions come with their operators, not with Kubernetes.
OTHERS = {"ScaledObject", "PodMonitor"}


class Check:
    """Notes the mistakes of one case."""

    def __init__(self, root: pathlib.Path, bin_: pathlib.Path, case: str) -> None:
        self.root = root  # of the packages' files
        self.bin = bin_
        self.case = case
        self.mistakes: list[str] = []

    def that(self, holds: bool, mistake: str) -> None:
        if not holds:
            self.mistakes.append(f"{self.case}: {mistake}")

    def has(self, path: str) -> bool:
        return (self.root / path[1:]).exists()

    def command(self, where: str, words: list[str]) -> None:
        """Checks that the program is one of our packages or of Debian, and has
        these flags."""
        known = words[0] in OF_DEBIAN or self.has(words[0])
        self.that(known, f"{where}: no {words[0]}")
        program = pathlib.Path(words[0]).name
        if program == "sh":
            self.script(where, words[2])
        if program not in manual_matches_help.PROGRAMS:
            return
        line = [str(self.bin / program)]
        options = manual_matches_help.options_of(manual_matches_help.help_of(line))
        if program == "fsctl":
            verb = next(word for word in words[1:] if re.fullmatch("[a-z]+", word))
            options |= manual_matches_help.options_of(
                manual_matches_help.help_of([*line, verb])
            )
        for word in words:
            flag = word.split("=")[0]
            if flag.startswith("--"):
                self.that(flag in options, f"{where}: {program} has no {flag}")

    def script(self, where: str, text: str) -> None:
        read = subprocess.run(
            ["/bin/sh", "-n"], input=text, capture_output=True, text=True
        )
        self.that(read.returncode == 0, f"{where}: {read.stderr}")
        for line in re.findall(r"/usr/bin/[^;|&>\n]*", text):
            self.command(where, shlex.split(line))

    def pod(self, name: str, spec: Object) -> None:
        user = spec["securityContext"]["runAsUser"]
        self.that(user == 10100, f"{name}: user {user}, not the others'")
        for namespace in ("hostNetwork", "hostPID"):
            self.that(spec.get(namespace, False), f"{name}: needs {namespace}")
        for container in spec.get("initContainers", []) + spec["containers"]:
            self.container(f"{name}/{container['name']}", spec, container)

    def container(self, where: str, spec: Object, container: Object) -> None:
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            self.that(mount["name"] in volumes, f"{where}: no volume {mount['name']}")
        self.runtime(where, container, volumes)
        environment = chart.environment_of(container, "")
        known = (SOURCE / "scripts/docs/reference.md").read_text()
        for variable in environment:
            if variable.startswith("FINESERVE_"):
                self.that(variable in known, f"{where}: no {variable} in reference.md")
        if container["name"] == "vllm":
            (copied,) = self.root.glob("usr/lib/*-linux-gnu/fineserve")
            shim = pathlib.Path(environment["LD_PRELOAD"]).relative_to("/shim")
            self.that((copied / shim).is_file(), f"{where}: no {shim}")
            view = environment["FINESERVE_VIEW"]
            self.that(view == "required", f"{where}: FINESERVE_VIEW is {view}")
            return
        image = container["image"].rsplit("/")[-1]
        self.that(image == f"fineserve:{VERSION}", f"{where}: {image} is not {VERSION}")
        self.command(where, container["command"] + container.get("args", []))
        for action in (
            container.get("readinessProbe", {}).get("exec"),
            container.get("lifecycle", {}).get("preStop", {}).get("exec"),
        ):
            if action:
                self.command(where, action["command"])

    def runtime(self, where: str, container: Object, volumes: Object) -> None:
        """Checks that the socket's folder is the host's, at the path that is
        set."""
        mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
        if "runtime" not in mounts:
            return
        folder = volumes["runtime"]["hostPath"]["path"]
        self.that(folder == mounts["runtime"] == "/run/fineserve", f"{where}: {folder}")
        arguments = container.get("args", [])
        said = chart.environment_of(container, "").get("FINESERVE_RUNTIME_DIR")
        if "--runtime-dir" in arguments:
            said = arguments[arguments.index("--runtime-dir") + 1]
        if container["name"] != "folders":  # which runs none of ours
            self.that(said == folder, f"{where}: its runtime folder is {said}")

    def references(self, objects: dict[str, Object]) -> None:
        """Checks that objects, ports and labels that others name exist."""
        for name, o in objects.items():
            self.that(o["metadata"]["namespace"] == "models", f"{name}: namespace")
        ports = set()
        for name, spec in chart.pods_of(objects).items():
            labels = objects[name]["spec"]["template"]["metadata"]["labels"]
            selector = objects[name]["spec"]["selector"]["matchLabels"]
            self.that(selector == labels, f"{name}: selects {selector}")
            for container in spec["containers"]:
                ports |= {port["name"] for port in container.get("ports", [])}
            for volume in spec["volumes"]:
                config, secret = volume.get("configMap"), volume.get("secret")
                wanted = config and f"ConfigMap/{config['name']}"
                if secret and secret["secretName"] != "theirs":
                    wanted = f"Secret/{secret['secretName']}"
                self.that(not wanted or wanted in objects, f"{name}: no {wanted}")
        service = objects["Service/fineserve"]["spec"]
        proxy = objects["DaemonSet/fineserve-proxy"]["spec"]["template"]["metadata"]
        self.that(service["selector"] == proxy["labels"], "Service: selects no proxy")
        scraped = objects.get("PodMonitor/fineserve", {}).get("spec", {})
        for end in service["ports"] + scraped.get("podMetricsEndpoints", []):
            port = end.get("targetPort", end["port"])
            self.that(port in ports, f"no container has the port {port}")

    def valid(self, text: str) -> None:
        """Validates against Kubernetes' own schemas, where a key that is not in
        them is wrong."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            for version in KUBERNETES:
                done = subprocess.run(
                    [chart.TOOLS / "bin/kubernetes-validate", "--strict"]
                    + ["--kubernetes-version", version, file.name],
                    capture_output=True,
                    text=True,
                )
                lines = (done.stdout + done.stderr).splitlines()
                for line in lines:
                    kind = re.search(r"find schema for kind (\w+)", line)
                    good = " passed for resource " in line or (
                        kind and kind[1] in OTHERS
                    )
                    self.that(bool(good), line)
                self.that(done.returncode == 0, f"Kubernetes {version}: {lines}")

    def fleet(self, objects: dict[str, Object], folder: pathlib.Path) -> Object:
        """Checks that fineserve-proxy takes the fleet and the keys of the
        Secret."""
        text = objects["ConfigMap/fineserve-fleet"]["data"]["fleet.toml"]
        keys = folder / "keys"
        keys.mkdir()
        secret = objects.get("Secret/fineserve-keys", {}).get("stringData", {})
        (keys / "keys").write_text(secret.get("keys", "sk-theirs\n"))
        (keys / "gpt").write_text("sk-outside\n")
        fleet = folder / "fleet.toml"
        fleet.write_text(text.replace("/etc/fineserve/keys", str(keys)))
        done = subprocess.run(
            [self.bin / "fineserve-proxy", "--fleet", fleet, "--check"],
            capture_output=True,
            text=True,
        )
        self.that(done.returncode == 0, f"fleet: {done.stderr}")
        return tomllib.loads(text)

    def started(self, spec: Object, pod: str, folder: pathlib.Path) -> list[str]:
        """Returns the words with which a pod's container starts vLLM, and its
        GPU."""
        vllm = folder / "vllm"
        vllm.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "gpu=$CUDA_VISIBLE_DEVICES"\n')
        vllm.chmod(0o755)
        (container,) = [c for c in spec["containers"] if c["name"] == "vllm"]
        environment = chart.environment_of(container, pod) | {
            "LD_PRELOAD": "",
            "PATH": f"{folder}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            container["command"] + container.get("args", []),
            env=environment,
            capture_output=True,
            text=True,
        )
        self.that(done.returncode == 0, f"{pod}: {done.stderr}")
        return done.stdout.splitlines()

    def stock(self, model: Object, engine: Object, folder: pathlib.Path) -> list[str]:
        """Returns the words with which `fsctl up` would start the engine."""
        as_stock = {"name": engine["name"], "model": model["name"]} | {
            "engine": "vllm",
            "url": engine["url"],
            "checkpoint": model["checkpoint"],
            "arguments": model.get("arguments", []),
        }
        settings = {
            key: model[key]
            for key in ("name", "slo_ttft_ms", "chunk_tokens", "max_batch")
            if key in model
        }
        lines = []
        for section, keys in (("model", settings), ("engine", as_stock)):
            lines.append(f"[[{section}]]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        (folder / "stock.toml").write_text("\n".join(lines))
        done = subprocess.run(
            [self.bin / "fsctl", "up", folder / "stock.toml", "--dry-run", "--json"],
            env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        self.that(done.returncode == 0, f"{engine['name']}: {done.stderr}")
        return json.loads(done.stdout)["engines"][0]["command"][1:]

    def engines(
        self, values: Object, fleet: Object, objects: Object, folder: pathlib.Path
    ) -> None:
        """Checks that each engine of the fleet has its pod, and that the pod
        starts it as it should."""
        models = {model["name"]: model for model in values["models"]}
        pods = chart.pods_of(objects)
        of_engines = {
            name
            for name, o in objects.items()
            if o["metadata"]["labels"].get("app.kubernetes.io/name")
            == "fineserve-engine"
        }
        seen = set()
        for engine in fleet["engine"]:
            name, its = engine["name"], models[engine["model"]]
            owner = f"DaemonSet/{name}"
            if "autoscaling" in its:
                owner = f"StatefulSet/{name.rsplit('-', 1)[0]}"
            self.that(owner in of_engines, f"no {owner}")
            seen.add(owner)
            spec = pods[owner]
            words = self.started(spec, name, folder)
            gpu = f"gpu={engine.get('gpu', values['gpus'][0])}"
            self.that(words[-1] == gpu, f"{name}: {words[-1]}, not {gpu}")
            stock = self.stock(its, engine, folder)
            self.that(sorted(words[:-1]) == sorted(stock), f"{words}, not {stock}")
            self.that(
                ("autoscaling" in its) == (engine.get("start") == "scaled"),
                f"{name}: start",
            )
            environment = chart.environment_of(spec["containers"][0], name)
            for key, value in its.get("env", {}).items():
                said = environment[key]
                self.that(said == str(value), f"{name}: {key} is {said}")
            self.leaves(name, spec)
        self.that(seen == of_engines, f"no fleet has {of_engines - seen}")

    def leaves(self, name: str, spec: Object) -> None:
        """Checks that the engine's pod may take longer to end than its
        drain."""
        vllm, leave = spec["containers"]
        for container in (vllm, leave):
            said = chart.environment_of(container, name)["FINESERVE_ENGINE"]
            self.that(said == name, f"{name}: called {said}")
        stop = leave["lifecycle"]["preStop"]["exec"]["command"][-1]
        wait = int(re.search(r"drain .* --wait (\d+)", stop)[1])
        grace = spec["terminationGracePeriodSeconds"]
        self.that(wait < grace, f"{name}: drains {wait} s of {grace} s")

    def autoscalers(self, fleet: Object, objects: Object) -> None:
        for name, o in objects.items():
            kind, _, target = name.partition("/")
            if kind not in ("HorizontalPodAutoscaler", "ScaledObject"):
                continue
            spec = o["spec"]
            replicas = [
                engine
                for engine in fleet["engine"]
                if engine["name"].rsplit("-", 1)[0] == target
                and engine.get("start") == "scaled"
            ]
            wanted = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": target}
            self.that(spec["scaleTargetRef"] == wanted, f"{name}: {wanted}")
            most = spec.get("maxReplicas", spec.get("maxReplicaCount"))
            self.that(most == len(replicas), f"{name}: {most} of {len(replicas)}")
            if replicas:
                self.follows(name, spec, replicas[0]["model"])

    def follows(self, name: str, spec: Object, model: str) -> None:
        """Checks that an autoscaler's metric is one that fineserved has for the
        model."""
        if "metrics" in spec:
            metric = spec["metrics"][0]["external"]["metric"]
            metric, its = metric["name"], metric["selector"]["matchLabels"]["model"]
        else:
            query = spec["triggers"][0]["metadata"]["query"]
            metric, its = re.search(r'(\w+)\{.*model="([^"]*)"\}', query).groups()
        self.that(its == model, f"{name}: of {its}, not of {model}")
        known = (SOURCE / "daemon/contract/metrics/metric_list.cc").read_text()
        self.that(f'"{metric}"' in known, f"{name}: no metric {metric}")
        import yaml

        adapter = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())
        (rule,) = adapter["rules"]["external"]
        self.that(rule["name"]["as"] == metric, f"prometheus-adapter has no {metric}")


def values_of(files: list[pathlib.Path], more: Object) -> Object:
    import yaml

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in files:
        values |= yaml.safe_load(path.read_text())
    return values | more


def check_case(case: str, root: pathlib.Path, bin_: pathlib.Path) -> list[str]:
    files, more = CASES[case]
    check = Check(root, bin_, case)
    words = [word for path in files for word in ("--values", path)]
    for key, value in more.items():
        words += ["--set-json", f"{key}={json.dumps(value)}"]
    linted = chart.helm("lint", "--strict", CHART, *words)
    check.that(linted.returncode == 0, linted.stdout + linted.stderr)
    rendered = chart.template(files, more)
    if rendered.returncode != 0:
        return [f"{case}: {rendered.stderr}"]
    check.valid(rendered.stdout)
    objects = chart.objects_in(rendered.stdout)
    for name, spec in chart.pods_of(objects).items():
        check.pod(name, spec)
    check.references(objects)
    with tempfile.TemporaryDirectory() as folder:
        fleet = check.fleet(objects, pathlib.Path(folder))
        check.engines(values_of(files, more), fleet, objects, pathlib.Path(folder))
    check.autoscalers(fleet, objects)
    print(f"{case}: {len(objects)} objects, {len(check.mistakes)} mistakes")
    return check.mistakes


def refusals() -> list[str]:
    mistakes = []
    for values, line in REFUSED:
        done = chart.template([], values)
        said = [said for said in done.stderr.splitlines() if line in said]
        if done.returncode == 0 or not said:
            mistakes.append(f"{values}: not refused by “{line}”: {done.stderr}")
    print(f"{len(REFUSED)} wrong values, {len(mistakes)} not refused")
    return mistakes


def upgrades() -> list[str]:
    """Checks that each upgrade replaces the pods that it should, and no
    others."""
    before = {"models": [model("a"), model("b")], "keys": {"lines": ["sk-1"]}}
    mistakes = []
    pods = chart.pods_of(chart.objects_in(chart.template([], before).stdout))
    for change, values, expected in UPGRADES:
        after = chart.template([], before | values).stdout
        now = chart.pods_of(chart.objects_in(after))
        replaced = {name.split("/")[1] for name in pods if pods[name] != now[name]}
        if replaced != expected:
            mistakes.append(f"{change} replaces {replaced}, not {expected}")
    print(f"{len(UPGRADES)} upgrades, {len(mistakes)} mistakes")
    return mistakes


def packed() -> list[str]:
    """Checks that an archive of the chart, made by helm or by scripts/package,
    equals the chart."""
    with tempfile.TemporaryDirectory() as folder:
        done = chart.helm("package", CHART, "--destination", folder)
        archive = pathlib.Path(folder) / f"fineserve-{VERSION}.tgz"
        if not archive.exists():
            return [f"helm package: no {archive.name}: {done.stdout}{done.stderr}"]
        ours = pathlib.Path(folder) / "ours" / archive.name
        ours.parent.mkdir()
        subprocess.run(
            [SOURCE / "scripts/package", "--chart", "--output", ours.parent],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        want = chart.template([]).stdout
        return [
            f"{path}: renders otherwise"
            for path in (archive, ours)
            if chart.template([], chart=path).stdout != want
        ]


def stated() -> list[str]:
    """Facts that the chart repeats."""
    mistakes = []
    import yaml

    written = yaml.safe_load((CHART / "Chart.yaml").read_text())
    for key in ("version", "appVersion"):
        if written[key] != VERSION:
            mistakes.append(f"Chart.yaml: {key} is {written[key]}, not {VERSION}")
    schema = json.loads((CHART / "values.schema.json").read_text())
    if set(EVERY_KEY) != set(schema["definitions"]["model"]["properties"]):
        mistakes.append("EVERY_KEY has not the keys of the schema's model")
    if set(values_of([], {})) != set(schema["properties"]) - {"global"}:
        mistakes.append("values.yaml has not the sections of the schema")
    if set(EVERY_SECTION) != set(schema["properties"]) - {"global"}:
        mistakes.append("EVERY_SECTION has not the sections of the schema")
    return mistakes


def check(build: pathlib.Path, root: pathlib.Path) -> int:
    mistakes = stated() + refusals() + upgrades() + packed()
    for case in CASES:
        mistakes += check_case(case, root, build / "bin")
    for mistake in mistakes:
        print(mistake)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(chart.run(__doc__.splitlines()[0], check))
