"""The objects of the Helm chart serve, without a cluster.

Processes take the place of containers, folders that of volumes, a program with
vLLM's command line that of vLLM, the emulated GPU that of a GPU. Commands, hooks,
probes, the fleet and the keys are the chart's own. A model is served; a changed
fleet and a new key are taken; an engine leaves by its pod's hooks, and the next
pod of its name takes requests.
"""

from __future__ import annotations

import http.client
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import chart
from chart import SOURCE, Object

sys.path.insert(0, str(SOURCE / "tests/deploy"))

from fleet_site import FleetSite  # noqa: E402
from stage import PATIENCE_S, free_port, http_answer  # noqa: E402

EMULATED = "usr/lib/*-linux-gnu/fineserve/emucuda"


class Node:
    """Runs containers of the rendered pods as processes of a site."""

    def __init__(self, site: FleetSite, root: pathlib.Path) -> None:
        self.site = site
        self.root = root  # of the packages' files
        self.objects: dict[str, Object] = {}
        self._pods: dict[str, Object] = {}

    def take(self, objects: dict[str, Object]) -> None:
        """Applies an upgrade as kubelet does: pods stay, and what they mount
        changes."""
        self._pods = self._pods or chart.pods_of(objects)
        self.objects = objects
        for name, o in objects.items():
            texts = o.get("data", o.get("stringData", {}))
            if o["kind"] not in ("ConfigMap", "Secret"):
                continue
            folder = self.site.folder / "mounted" / name.partition("/")[2]
            folder.mkdir(parents=True, exist_ok=True)
            for entry, text in texts.items():
                # Paths in the fleet are those in the proxy's container.
                text = self.adapted(text, "DaemonSet/fineserve-proxy", 0)
                (folder / "new").write_text(text)
                (folder / "new").chmod(0o600)
                (folder / "new").rename(folder / entry)

    def _volume(self, pod: str, volume: Object) -> pathlib.Path:
        mounted = volume.get("configMap", {}).get("name") or volume.get(
            "secret", {}
        ).get("secretName")
        if mounted:
            return self.site.folder / "mounted" / mounted
        if path := volume.get("hostPath", {}).get("path"):
            folders = {"/run/fineserve": "run", "/var/lib/fineserve": "lib"}
            return self.site.folder / folders[path]
        return self.site.folder / "empty" / pod.replace("/", "-") / volume["name"]

    def containers(self, pod: str) -> list[Object]:
        spec = self._pods[pod]
        return spec["containers"] + spec.get("initContainers", [])

    def adapted(self, text: str, pod: str, number: int) -> str:
        """Returns a text of a container with its paths replaced by those of
        this machine."""
        volumes = {v["name"]: v for v in self._pods[pod]["volumes"]}
        places = {}
        for mount in self.containers(pod)[number]["volumeMounts"]:
            place = self._volume(pod, volumes[mount["name"]])
            if "hostPath" not in volumes[mount["name"]]:
                place.mkdir(parents=True, exist_ok=True)
            places[mount["mountPath"]] = str(place)
        ours = "|".join(re.escape(p) for p in sorted(places, key=len, reverse=True))

        def here(match: re.Match[str]) -> str:
            path = match[0]
            if path in places:
                return places[path]
            packaged = f"{self.root}{path}"
            return packaged if os.path.exists(packaged) else path

        text = text.replace("10100", str(os.getuid()))
        return re.sub(rf"(?<![\w./-])(?:(?:{ours})(?![\w-])|/usr/[\w./-]+)", here, text)

    def words(
        self, pod: str, name: str, hook: str = ""
    ) -> tuple[list[str], dict[str, str]]:
        """Returns the command line and variables of a container, or of one of
        its hooks or probes."""
        (number,) = [
            i for i, c in enumerate(self.containers(pod)) if c["name"] == name
        ]
        container = self.containers(pod)[number]
        words = container["command"] + container.get("args", [])
        if hook:
            words = (container.get(hook) or container["lifecycle"][hook])["exec"][
                "command"
            ]
        variables = {
            key: self.adapted(value, pod, number)
            for key, value in chart.environment_of(container, self.name_of(pod)).items()
        }
        (emulated,) = self.root.glob(EMULATED)
        variables["LD_LIBRARY_PATH"] = str(emulated)
        return [self.adapted(word, pod, number) for word in words], variables

    @staticmethod
    def name_of(pod: str) -> str:
        kind, _, name = pod.partition("/")
        return f"{name}-0" if kind == "StatefulSet" else name

    def run(self, pod: str, name: str, hook: str = "") -> int:
        words, variables = self.words(pod, name, hook)
        done = subprocess.run(
            words,
            env=os.environ | self.site.environment | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0 and not hook.endswith("Probe"):
            print(f"{pod} {name} {hook}: {done.stdout}{done.stderr}")
        return done.returncode

    def start(self, pod: str, name: str, hook: str = "") -> subprocess.Popen[str]:
        (program, *words), variables = self.words(pod, name, hook)
        found = shutil.which(program, path=self.site.environment["PATH"])
        return self.site.start(found or program, *words, **variables)

    def is_ready(self, pod: str, name: str) -> bool:
        """Whether the container's readiness probe succeeds."""
        (container,) = [c for c in self.containers(pod) if c["name"] == name]
        probe = container["readinessProbe"]
        if "exec" in probe:
            return self.run(pod, name, "readinessProbe") == 0
        asked = probe["httpGet"]
        ports = {p["name"]: p["containerPort"] for p in container.get("ports", [])}
        port = ports.get(asked["port"], asked["port"])
        try:
            return get(asked["host"], port, asked["path"]) == 200
        except OSError:
            return False


def get(host: str, port: int, path: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def ask(port: int, model: str, key: str) -> int:
    body = {"model": model, "prompt": "four words of prompt", "max_tokens": 4}
    fields = {"Authorization": f"Bearer {key}"}
    return http_answer(port, "/v1/completions", body, fields, PATIENCE_S)[0]


class Story:
    """One release of the chart. With `scaled`, an autoscaler's pod serves its
    model."""

    def __init__(self, node: Node, scaled: bool) -> None:
        self.node = node
        self.engine = "StatefulSet/chat" if scaled else "DaemonSet/chat"
        ports: set[int] = set()
        while len(ports) < 4:
            ports.add(free_port())
        self.port, self.metrics_port, admin_port, engine_port = ports
        self.model = {
            "name": "chat",
            "checkpoint": "Qwen/Qwen3-8B",
            "slo_ttft_ms": 100_000,
            "port": engine_port,
        }
        if scaled:
            self.model["autoscaling"] = {"by": "keda", "minReplicas": 0}
        self.values = {
            "models": [self.model],
            "nodeSelector": {"kubernetes.io/hostname": "here"},
            "fineserved": {"pool": "64MiB", "arguments": ["--slab", "2MiB"]},
            "proxy": {"port": self.port, "adminPort": admin_port},
            "metrics": {"enabled": True, "port": self.metrics_port},
            "engine": {"drainSeconds": 60},
            "keys": {"lines": ["sk-1 name=alice"]},
        }

    def upgrade(self) -> None:
        rendered = chart.template([], self.values)
        assert rendered.returncode == 0, rendered.stderr
        self.node.take(chart.objects_in(rendered.stdout))

    def wait_until_ready(self, pod: str, name: str) -> None:
        self.node.site.wait_for(
            f"{pod} {name} is ready", lambda: self.node.is_ready(pod, name)
        )

    def answers(self, model: str, key: str) -> None:
        self.node.site.wait_for(
            f"{model} answers {key}", lambda: ask(self.port, model, key) == 200
        )

    def start_engine(self) -> list[subprocess.Popen[str]]:
        started = [self.node.start(self.engine, name) for name in ("leave", "vllm")]
        self.wait_until_ready(self.engine, "vllm")
        return started

    def begin(self) -> list[subprocess.Popen[str]]:
        node, daemon = self.node, "DaemonSet/fineserved"
        self.upgrade()
        for folder in ("run", "lib"):
            (node.site.folder / folder).mkdir()
        assert node.run(self.engine, "shim") == 0
        waits = node.start(self.engine, "daemon")
        # The revision of a former pod.
        (node.site.folder / "run/revision").write_text("other\n")
        assert node.run(daemon, "folders") == 0
        for folder in ("run", "lib"):
            mode = (node.site.folder / folder).stat().st_mode
            assert mode & 0o7777 == 0o700, f"{folder}: {mode:o}"
        node.start(daemon, "gpu-0")
        self.wait_until_ready(daemon, "gpu-0")
        assert waits.wait(PATIENCE_S) == 0
        started = self.start_engine()
        for name in ("fineserve-proxy", "apply"):
            node.start("DaemonSet/fineserve-proxy", name)
        self.wait_until_ready("DaemonSet/fineserve-proxy", "fineserve-proxy")
        return started

    def serve(self) -> None:
        self.answers("chat", "sk-1")
        assert ask(self.port, "chat", "sk-2") == 401
        assert get("127.0.0.1", self.metrics_port, "/metrics") == 200
        held = self.node.site.fsctl("engines").stdout
        assert self.node.name_of(self.engine) in held, held
        status = self.node.site.fsctl("status")
        assert status.returncode == 0, status.stdout

    def change(self) -> None:
        # The first change may be applied merely because it is the first, so
        # more follow.
        for alias, key in (("small", "sk-1"), ("small", "sk-2"), ("tiny", "sk-2")):
            self.model["aliases"] = [alias]
            lines = sorted({"sk-1 name=alice", f"{key} name=alice"})
            self.values["keys"] = {"lines": lines}
            self.upgrade()
            self.answers(alias, key)

    def leave(self, engine: list[subprocess.Popen[str]]) -> None:
        """Ends a pod as kubelet does: runs all preStop hooks at once, then
        sends SIGTERM."""
        waits = self.node.start(self.engine, "vllm", "preStop")
        assert self.node.run(self.engine, "leave", "preStop") == 0
        assert waits.wait(PATIENCE_S) == 0
        assert ask(self.port, "chat", "sk-1") != 200
        for process in engine:
            self.node.site.end(process, signal.SIGTERM)
        (self.node.site.folder / "empty").rename(self.node.site.folder / "gone")
        assert self.node.run(self.engine, "shim") == 0
        assert self.node.run(self.engine, "daemon") == 0
        self.start_engine()
        self.answers("chat", "sk-1")


def check(build: pathlib.Path, root: pathlib.Path) -> int:
    for scaled in (False, True):
        site = FleetSite(build / "bin")
        try:
            story = Story(Node(site, root), scaled)
            engine = story.begin()
            story.serve()
            story.change()
            story.leave(engine)
        except BaseException:
            print(site.logs())
            raise
        finally:
            site.close()
        print(f"{story.engine}: served, changed, left and came back")
    return 0


if __name__ == "__main__":
    sys.exit(chart.run(__doc__.splitlines()[0], check))
