"""A whole product on an emulated GPU: fineserved, fineserve-proxy, and engines
that `fsctl up` starts from a fleet file, such as a stock `vllm serve`."""

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

# Because operators run on the host. FineServe needs none of them.
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
    """A daemon for each GPU that has an engine, and one proxy. Its processes end
    with close(). `environment` is that of programs on the emulated GPUs; engines
    get `engine_environment` besides. `overload`: the fleet's."""

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
        # Their daemons, by the names of their logs.
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
        """UUIDs of the machine's GPUs; none where engines need not name
        theirs."""
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
        """A model needs only its name and its SLO."""
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
        """Starts everything at once; returns when all engines serve.
        `arguments`: fineserved's, besides."""
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
        """kill -9 of one of our own programs."""
        process = self.running.pop(name)
        kill_9(process.pid)
        process.wait()

    def stop_named(self, name: str) -> int:
        """Ends one of our own programs; returns its exit code. "up" ends the
        engines."""
        return self.end(self.running[name], signal.SIGTERM)

    # Waiting ends as soon as a program has ended that is waited for.

    def wait_until_all_serve(self) -> None:
        names = {engine.name for engine in self.engines}
        # Engines that may leave start one after the other.
        patience_s = START_S * max(1.0, len(names) / 4)
        if not self._eventually(
            lambda: self.started() >= names and self.serving() == names,
            patience_s,
        ):
            raise AssertionError(
                f"{self.serving()} of {names} serve\n{self.logs()}"
            )

    def started(self) -> set[str]:
        """Those that fsctl up has seen serve. A proxy takes engines for healthy
        until it has looked."""
        return set(re.findall(r"^(\S+): serving", self.log("up"), re.MULTILINE))

    def wait_until_it_serves_again(self, engine: str) -> None:
        """After one of its processes was killed."""
        self.wait_until_it_ends(engine)
        self.wait_until_it_serves(engine, kills=1)

    def wait_until_it_ends(self, engine: str) -> None:
        if not stage.eventually(lambda: engine not in self.serving(), 30):
            raise AssertionError(f"{engine} still serves")

    def wait_until_it_serves(self, engine: str, kills: int) -> None:
        """`kills`: how often it may have ended since it served last."""
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
        """Raises AssertionError if one of our own programs has ended, or an
        engine more often than `kills` times since it served."""
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
        """Counts the engine's ends in the output of `fsctl up`."""
        ends = 0
        for line in self._lines("up"):
            if f"{engine}: serving" in line:
                ends = 0
            ends += f"{engine}: ended" in line
        return ends

    def _last_words(self, name: str) -> str:
        """A refusal of ours, above which Python prints where it was raised and
        below which vLLM says that it did not start; else the last line."""
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
        """The fleet's, as the daemon of each GPU in turn sees them."""
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
        """Starts `vllm bench serve` against the proxy; what it found is in the
        file `result` of the site's folder when it has ended."""
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
        """The proxy's page for Prometheus."""
        return stage.http_answer(self._admin, "/metrics", timeout=ANSWER_S)[1]

    def slabs_of(self) -> dict[str, int]:
        return {
            engine["name"]: engine["slabs"]
            for engine in self.report("engines")["engines"]
        }

    def pids(self, engine: str) -> list[int]:
        """Those of its processes that the pool knows: EngineCore's."""
        return [
            pid
            for found in self.report("engines")["engines"]
            if found["name"] == engine
            for pid in found["pids"]
        ]

    def complete(
        self, model: str, prompt: list[int], max_tokens: int, **options: Any
    ) -> Answer:
        """A completion through the proxy, greedy unless `options` say
        otherwise; exactly `max_tokens` long."""
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
    """With a vLLM per model, on the emulated GPU that `device` describes."""
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
    """The body of a request for exactly as many tokens, greedy."""
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
    """Without what fsctl up sets by itself."""
    _shim, *preloaded = environment["LD_PRELOAD"].split(":")
    kept = {k: v for k, v in environment.items() if k != "FINESERVE_VIEW"}
    return kept | {"LD_PRELOAD": ":".join(preloaded)}
