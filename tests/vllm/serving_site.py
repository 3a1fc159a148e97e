"""A complete deployment on an emulated GPU: fineserved, fineserve-proxy, and
engines that `fsctl up` starts from a fleet file, such as a stock `vllm
serve`."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import signal
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gpu_machine import BUILD, MAX_TOKENS, Model, engine_environment, kill_9
from machine import EMUCUDA, stage

START_S = 1200  # until all engines serve, on two busy cores
ANSWER_S = 300
RECOVERY_S = 900  # of a killed engine

# Needed because operators run on the host. FineServe needs none of these flags.
_HOST_DEVICE_FLAGS = [
    *("--attention-backend", "CUSTOM"),
    "--enforce-eager",
    *("--compilation-config", '{"custom_ops": ["none"]}'),
    "--kernel-config",
    '{"ir_op_priority": {"rms_norm": ["native"], '
    '"fused_add_rms_norm": ["native"]}}',
]

_ENDPOINTS = {  # by vllm bench serve's --backend
    "openai": "/v1/completions",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}

# Its argument: NVML's library, which reads the environment when it is loaded.
_LIST_GPUS = """
import ctypes, sys
nvml = ctypes.CDLL(sys.argv[1])
nvml.nvmlInit_v2()
count = ctypes.c_uint()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
for i in range(count.value):
    device, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device))
    nvml.nvmlDeviceGetUUID(device, uuid, len(uuid))
    print(uuid.value.decode())
"""


@dataclasses.dataclass(frozen=True)
class Served:
    """One engine of the fleet, by the name that clients send.

    engine: what its [[engine]] says besides name, model, url and GPU; model:
    what its [[model]] says besides its name and SLO; that of the first of
    several replicas counts.
    """

    name: str
    path: str  # of its model
    engine: dict[str, Any]
    model: dict[str, Any] = dataclasses.field(default_factory=dict)
    replica_of: str = ""  # the name that clients send, if it is another
    devices: tuple[int, ...] = (0,)  # its emulated GPUs, in its ranks' order

    @property
    def model_name(self) -> str:
        return self.replica_of or self.name


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    tokens: list[int]
    body: str


class ServingSite(stage.Machine):
    """A daemon for each GPU that has an engine, and one proxy. close() ends the
    processes. Programs on the emulated GPUs get `environment`; engines get
    `engine_environment` as well. `overload`: the fleet file's [overload]
    section."""

    def __init__(
        self,
        folder: pathlib.Path,
        engines: Sequence[Served],
        environment: dict[str, str],
        engine_environment: dict[str, str],
        overload: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(BUILD / "bin", folder, environment)
        self.engines = engines
        self._engine_environment = engine_environment
        devices = sorted({d for engine in engines for d in engine.devices})
        # The device of each daemon, by the name of the daemon's log.
        self.daemons = {
            f"daemon-{device}" if device else "daemon": device
            for device in devices
        }
        self.gpus = self._gpus()
        self.port, self._admin, *ports = stage.free_ports(2 + len(engines))
        self.url_of = {
            engine.name: f"http://127.0.0.1:{port}"
            for engine, port in zip(engines, ports)
        }
        self.fleet = folder / "fleet.toml"
        self.fleet.write_text(self._fleet(overload))

    def _gpus(self) -> list[str]:
        """Returns the UUIDs of the machine's GPUs, or none if engines need not
        name their GPU."""
        if len(self.daemons) == 1:
            return []
        listed = subprocess.run(
            [sys.executable, "-c", _LIST_GPUS, EMUCUDA / "libnvidia-ml.so.1"],
            env=os.environ | self.environment,
            capture_output=True,
            check=True,
            text=True,
        )
        return listed.stdout.split()

    def _fleet(self, overload: dict[str, Any] | None) -> str:
        """Returns the fleet file's text. A model needs only its name and its
        SLO."""
        sections = [
            stage.table(
                "[proxy]",
                listen=f"127.0.0.1:{self.port}",
                admin=f"127.0.0.1:{self._admin}",
            )
        ]
        if overload is not None:
            sections.append(stage.table("[overload]", **overload))
        models: set[str] = set()
        for served in self.engines:
            if served.model_name not in models:
                models.add(served.model_name)
                model = {"name": served.model_name, "slo_ttft_ms": 60000}
                sections.append(stage.table("[[model]]", **(model | served.model)))
            engine = {
                "name": served.name,
                "model": served.model_name,
                "url": self.url_of[served.name],
            } | served.engine
            if self.gpus:
                engine |= self._keys_of_gpus(served)
            if "command" in engine:
                port = engine["url"].rpartition(":")[2]
                engine["command"] += ["--port", port]
            sections.append(stage.table("[[engine]]", **engine))
        return "".join(sections)

    def _keys_of_gpus(self, served: Served) -> dict[str, Any]:
        gpus = [self.gpus[device] for device in served.devices]
        return {"gpu": gpus[0] if len(gpus) == 1 else gpus}

    # Processes.

    def start_all(
        self, pool_slabs: int, slab_bytes: int, *arguments: str
    ) -> None:
        """Starts all programs and returns when all engines serve. `arguments`:
        further arguments of fineserved."""
        self.start_daemons(pool_slabs, slab_bytes, *arguments)
        self.start_proxy()
        self.start_up()
        self.wait_until_all_serve()

    def start_up(self) -> None:
        self.start(
            *("fsctl", "up", self.fleet, "--logs", self.folder),
            name="up",
            **self._engine_environment,
        )

    def start_proxy(self) -> None:
        self.start("fineserve-proxy", "--fleet", self.fleet, name="proxy")

    def start_daemons(
        self, pool_slabs: int, slab_bytes: int, *arguments: str
    ) -> None:
        """`pool_slabs`: 0 for a size "auto"."""
        pool = pool_slabs * slab_bytes or "auto"
        for name, device in self.daemons.items():
            self.start(
                *("fineserved", "--gpu", f"emulated:{device}"),
                *("--pool", pool, "--slab", slab_bytes),
                *("--fleet", self.fleet),
                *arguments,
                name=name,
            )
        if not self._eventually(self._daemons_serve, START_S):
            raise AssertionError(f"fineserved does not serve\n{self.logs()}")

    def _daemons_serve(self) -> bool:
        return all(
            " serving " in self.log(name) for name in self.daemons
        )

    def kill(self, name: str) -> None:
        """Kills one of our own programs with SIGKILL."""
        process = self.running.pop(name)
        kill_9(process.pid)
        process.wait()

    def stop_named(self, name: str) -> int:
        """Ends one of our own programs; returns its exit code. "up" ends the
        engines."""
        return self.end(self.running[name], signal.SIGTERM)

    # Each wait fails as soon as a program that it depends on has ended.

    def wait_until_all_serve(self) -> None:
        names = {engine.name for engine in self.engines}
        # Engines that can be evicted start one after the other.
        patience_s = START_S * max(1.0, len(names) / 4)
        if not self._eventually(
            lambda: self.started() >= names and self.serving() == names,
            patience_s,
        ):
            raise AssertionError(
                f"{self.serving()} of {names} serve\n{self.logs()}"
            )

    def started(self) -> set[str]:
        """Returns the engines that fsctl up has seen serving. A proxy assumes
        that an engine is healthy until it has checked."""
        return set(re.findall(r"^(\S+): serving", self.log("up"), re.MULTILINE))

    def wait_until_it_serves_again(self, engine: str) -> None:
        """Waits for the recovery of an engine of which a process was killed."""
        self.wait_until_it_ends(engine)
        self.wait_until_it_serves(engine, kills=1)

    def wait_until_it_ends(self, engine: str) -> None:
        if not stage.eventually(lambda: engine not in self.serving(), 30):
            raise AssertionError(f"{engine} still serves")

    def wait_until_it_serves(self, engine: str, kills: int) -> None:
        """Waits until the engine serves. `kills`: how often it may have ended
        since it last served."""
        if not self._eventually(
            lambda: engine in self.serving(), RECOVERY_S, kills
        ):
            raise AssertionError(f"{engine} is not back\n{self.logs()}")

    def _eventually(
        self, condition: Callable[[], bool], seconds: float, kills: int = 0
    ) -> bool:
        def holds() -> bool:
            self._require_alive(kills)
            return condition()

        return stage.eventually(holds, seconds)

    def _require_alive(self, kills: int) -> None:
        """Raises AssertionError if one of our own programs has ended, or if an
        engine has ended more than `kills` times since it last served."""
        ended = [
            name
            for name, process in self.running.items()
            if process.poll() is not None
        ] + [
            engine.name
            for engine in self.engines
            if self._ends_since_it_served(engine.name) > kills
        ]
        for name in ended:
            raise AssertionError(
                f"{name} has ended: {self._last_words(name)}\n{self.logs()}"
            )

    def _ends_since_it_served(self, engine: str) -> int:
        """Counts in the output of `fsctl up` how often the engine has ended
        since it last served."""
        ends = 0
        for line in self._lines("up"):
            if f"{engine}: serving" in line:
                ends = 0
            ends += f"{engine}: ended" in line
        return ends

    def _last_words(self, name: str) -> str:
        """Returns the last refusal of ours in the log, else the last line.
        Python prints a traceback above the refusal, and vLLM prints below it
        that it did not start."""
        lines = [line for line in self._lines(name) if line.strip()]
        refusals = [line for line in lines if "Error: FineServe: " in line]
        return (refusals or lines or ["it said nothing"])[-1]

    def _lines(self, name: str) -> list[str]:
        return self.log(name).splitlines()

    def serving(self) -> set[str]:
        try:
            models = self.models()
        except subprocess.CalledProcessError:  # no daemon yet
            return set()
        engines = (engine for model in models for engine in model["engines"])
        return {engine["name"] for engine in engines if engine["serves"]}

    def models(self) -> list[dict[str, Any]]:
        """Returns the fleet's models as the daemon of each GPU reports them, in
        the order of the GPUs."""
        asked = [["--gpu", gpu] for gpu in self.gpus] or [[]]
        return [
            model
            for gpu in asked
            for model in self.report(*gpu, "models")["models"]
        ]

    # Actions of the site.

    def start_bench(
        self, model: str, result: str, backend: str, *arguments: str
    ) -> subprocess.Popen[str]:
        """Starts `vllm bench serve` against the proxy. When it has ended, its
        results are in the file `result` in the site's folder."""
        path = next(e.path for e in self.engines if e.model_name == model)
        return subprocess.Popen(
            [pathlib.Path(sys.executable).with_name("vllm"), "bench", "serve"]
            + ["--base-url", f"http://127.0.0.1:{self.port}"]
            + ["--backend", backend, "--endpoint", _ENDPOINTS[backend]]
            + ["--model", model, "--tokenizer", path, "--ignore-eos"]
            + ["--save-result", "--result-dir", self.folder]
            + ["--result-filename", result, "--disable-tqdm", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )

    def metrics(self) -> str:
        """Returns the proxy's metrics page for Prometheus."""
        return stage.http_answer(self._admin, "/metrics", timeout=ANSWER_S)[1]

    def slabs_of(self) -> dict[str, int]:
        return {
            engine["name"]: engine["slabs"]
            for engine in self.report("engines")["engines"]
        }

    def pids(self, engine: str) -> list[int]:
        """Returns those processes of the engine that the pool knows: its
        EngineCores."""
        return [
            pid
            for found in self.report("engines")["engines"]
            if found["name"] == engine
            for pid in found["pids"]
        ]

    def complete(
        self, model: str, prompt: list[int], max_tokens: int, **options: Any
    ) -> Answer:
        """Requests a completion of exactly `max_tokens` tokens through the
        proxy, greedy unless `options` say otherwise."""
        request = completion(model, prompt, max_tokens) | options
        status, body = stage.http_answer(
            self.port, "/v1/completions", request, timeout=ANSWER_S
        )
        tokens = []
        if status == 200:
            tokens = json.loads(body)["choices"][0]["token_ids"]
        return Answer(status, tokens, body)

    def complete_all(
        self, model: str, prompts: Sequence[list[int]], max_tokens: int
    ) -> list[Answer]:
        """Sends them at once."""
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as clients:
            return list(
                clients.map(
                    lambda prompt: self.complete(model, prompt, max_tokens),
                    prompts,
                )
            )


def site_of(
    models: dict[str, Model],
    models_folder: pathlib.Path,
    folder: pathlib.Path,
    device: dict[str, str],
) -> ServingSite:
    """Returns a site with one vLLM per model, on the emulated GPU that `device`
    describes."""
    return ServingSite(
        folder,
        [
            served_by_vllm(name, model.make(models_folder))
            for name, model in models.items()
        ],
        device,
        before_fsctl_up(engine_environment(device, shim=True, runner=2)),
    )


def completion(model: str, prompt: list[int], max_tokens: int) -> dict[str, Any]:
    """Returns the body of a greedy request for exactly `max_tokens` tokens."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }


def served_by_vllm(name: str, path: str, *flags: str) -> Served:
    return Served(
        name,
        path,
        engine={
            "engine": "vllm",
            "checkpoint": path,
            "program": str(pathlib.Path(sys.executable).with_name("vllm")),
            "arguments": [
                *_HOST_DEVICE_FLAGS,
                *("--dtype", "float32", "--max-model-len", str(MAX_TOKENS)),
                *flags,
            ],
        },
        model={"chunk_tokens": 256, "max_batch": 32},
    )


def before_fsctl_up(environment: dict[str, str]) -> dict[str, str]:
    """Returns the environment without what fsctl up sets itself."""
    _shim, *preloaded = environment["LD_PRELOAD"].split(":")
    kept = {k: v for k, v in environment.items() if k != "FINESERVE_VIEW"}
    return kept | {"LD_PRELOAD": ":".join(preloaded)}
