"""Stock vLLM servers without FineServe, each with a fixed share of the KV
memory. Those that can sleep take turns on the GPU through vLLM's own
endpoints."""

from __future__ import annotations

import contextlib
import pathlib
import sys
import threading
from collections.abc import Iterator, Sequence

import crowd
from serving_site import START_S, Served, stage

WAKE_S = 600


class Servers(stage.Machine):
    """Starts and ends the servers. `environment`: that of an engine on the
    emulated GPU."""

    def __init__(
        self,
        bin_: pathlib.Path,
        folder: pathlib.Path,
        environment: dict[str, str],
        engines: Sequence[Served],
    ) -> None:
        super().__init__(bin_, folder, environment)
        self.engines = engines
        self.port_of = dict(
            zip(
                (engine.name for engine in engines),
                stage.free_ports(len(engines)),
            )
        )

    def program(self, name: str) -> str:
        return str(pathlib.Path(sys.executable).with_name(name))

    def start_one(self, engine: Served, *flags: str) -> None:
        port = self.port_of[engine.name]
        process = self.start(
            *("vllm", "serve", engine.path, "--port", port),
            *("--served-model-name", engine.name),
            *engine.engine["arguments"],
            *flags,
            name=engine.name,
            VLLM_SERVER_DEV_MODE="1",
        )

        def serves_or_ended() -> bool:
            if process.poll() is not None:
                return True
            try:
                return stage.http_answer(port, "/health")[0] == 200
            except OSError:
                return False

        stage.eventually(serves_or_ended, START_S)
        if process.poll() is not None or not serves_or_ended():
            raise AssertionError(f"{engine.name}: {self.log(engine.name)[-9000:]}")

    @contextlib.contextmanager
    def port_for(self, model: str) -> Iterator[int]:
        if model not in self.port_of:
            raise TimeoutError("no engine has this model")
        yield self.port_of[model]


class Sleepers(Servers):
    """Servers of which at most `room` are awake. A request for a sleeping model
    waits until the model that has been idle for the longest is put to sleep. If
    none is idle, the model that woke up first gets no further requests until it
    sleeps."""

    def __init__(self, *where: object, room: int) -> None:
        super().__init__(*where)  # type: ignore[arg-type]
        self._room = room
        self._changed = threading.Condition()
        self._uses: dict[str, int] = {}  # of the models that are awake
        self._last: list[str] = []  # awake, the least recently used first
        self._woken: list[str] = []  # awake, in the order of their waking
        self._leaving: str | None = None  # gets no request
        self._moves = False
        self.sleeps = self.wakes = 0

    def start_all(self, *flags: str) -> None:
        """Starts the engines one after the other. After the first `room`
        engines, each further engine starts while only room - 1 others are
        awake."""
        for engine in self.engines:
            if len(self._last) == self._room:
                self._put_to_sleep(self._last[0])
            self.start_one(engine, "--enable-sleep-mode", *flags)
            self._note_awake(engine.name)
        self.sleeps = 0

    @contextlib.contextmanager
    def port_for(self, model: str) -> Iterator[int]:
        self._begin(model)
        try:
            yield self.port_of[model]
        finally:
            with self._changed:
                self._uses[model] -= 1
                self._changed.notify_all()

    def _begin(self, model: str) -> None:
        with self._changed:
            while model not in self._uses or model == self._leaving:
                sleeper = None if self._moves else self._who_sleeps(model)
                if sleeper is None:
                    self._changed.wait(WAKE_S)
                    continue
                self._moves = True
                with self._released():
                    self._put_to_sleep(sleeper)
                    self._post(model, "/wake_up")
                self.wakes += 1
                self._note_awake(model)
                self._moves, self._leaving = False, None
                self._changed.notify_all()
            self._uses[model] += 1
            self._last.remove(model)
            self._last.append(model)

    @contextlib.contextmanager
    def _released(self) -> Iterator[None]:
        self._changed.release()
        try:
            yield
        finally:
            self._changed.acquire()

    def _who_sleeps(self, wanted: str) -> str | None:
        """Returns the model to put to sleep. None if all have requests, or if
        `wanted` itself must sleep first."""
        if wanted == self._leaving:
            return None
        candidates = [self._leaving] if self._leaving else self._last
        for model in candidates:
            if self._uses[model] == 0:
                self._leaving = model
                return model
        self._leaving = self._leaving or self._woken[0]
        return None

    def _put_to_sleep(self, model: str) -> None:
        self._post(model, "/sleep?level=1&mode=wait")
        self.sleeps += 1
        del self._uses[model]
        self._last.remove(model)
        self._woken.remove(model)

    def _note_awake(self, model: str) -> None:
        self._uses[model] = 0
        self._last.append(model)
        self._woken.append(model)

    def _post(self, model: str, path: str) -> None:
        status, said = stage.http_answer(
            self.port_of[model], path, {}, timeout=crowd.GIVEN_UP_S
        )
        if status != 200:
            raise AssertionError(f"{model} {path}: {status} {said}")
