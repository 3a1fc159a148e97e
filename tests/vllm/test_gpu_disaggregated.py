"""Prefill on one stock vLLM and decode on another one by NixlConnector, on views:
the decoder's blocks are filled by reads of the prefiller's memory while slabs
trade, and no slab goes to another engine while a read may still write it.

As test_gpu_worker.py, on vLLM itself (label vllm). NIXL is a stand-in
(nixl_stand_in): its reads can be held back, and fail in part.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import unittest
from typing import Any

from gpu_machine import (
    HERE,
    REAL_GPU,
    EngineEnded,
    VllmEngine,
    VllmMachine,
    engine_environment,
    kill_9,
    random_prompts,
)
from machine import stage
from test_gpu_worker import LARGE, SMALL, broken

STAND_IN = str(HERE / "nixl_stand_in")
PREFILLER, DECODER, NEIGHBOUR = range(3)
HELD = 6  # whose reads are held back
TOKENS = 24  # an answer has so many
READ_MS = "200"  # a read takes longer than steps


@unittest.skipIf(REAL_GPU is not None, "reads device memory from the host")
class Disaggregated(VllmMachine):
    """The neighbour and the decoder want more than their shared pool has."""

    ON = [0, 1, 1]  # the GPU of each engine
    BATCH = 16  # requests
    device_memory = 512 << 20
    MODELS = [LARGE, LARGE, SMALL]

    def setUp(self) -> None:
        super().setUp()
        devices = 1 + max(self.ON)
        self.environment["EMUCUDA_DEVICES"] = str(devices)
        self.settings = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.settings)
        for device in range(devices):
            self.start_daemon(device=device)
        self.seed = 0
        self.wrong = [0, 0, 0]

    def start(
        self,
        *,
        decoder: dict[str, str] | None = None,
        on_failure: str = "recompute",
    ) -> None:
        """Starts the engines. `decoder`: additional environment of the decoder.
        on_failure: vLLM's policy for requests whose read fails."""
        self.engines: list[VllmEngine] = [
            self.start_vllm(
                self.MODELS[i],
                view=True,
                environment={
                    "CUDA_VISIBLE_DEVICES": str(self.ON[i]),
                    "VLLM_NIXL_SIDE_CHANNEL_PORT": str(stage.free_port()),
                }
                | self.nixl_environment()
                | ((decoder or {}) if i == DECODER else {}),
                **own,
            )
            for i, own in enumerate([
                nixl("kv_producer"),
                nixl("kv_consumer", kv_load_failure_policy=on_failure),
                {},
            ])
        ]
        for engine in self.engines:
            print("start", engine.answer()["seconds"], flush=True)

    def nixl_environment(self) -> dict[str, str]:
        path = engine_environment(self.environment, shim=True, runner=2)
        return {
            "PYTHONPATH": f"{path['PYTHONPATH']}:{STAND_IN}",
            "NIXL_STAND_IN": str(self.settings),
            "NIXL_STAND_IN_MS": READ_MS,
        }

    def prompts(self, count: int | None = None) -> list[list[int]]:
        self.seed += 1
        count = count or self.BATCH
        return random_prompts(self.seed, count, (100, 250), shared=64)

    def prefill(self, prompts: list[list[int]]) -> list[dict[str, Any]]:
        """Prefills the prompts; returns what the decoder has to know of each
        prompt's KV."""
        engine = self.engines[PREFILLER]
        count = len(prompts)
        ask = [{"do_remote_decode": True}] * count
        engine.run(
            "begin", prompts=prompts, max_tokens=[1] * count, transfers=ask
        )
        return engine.run("finish")["transfers"]

    def begin(self, prompts: list[list[int]]) -> None:
        """Prefills the prompts; the decoder then reads their KV and decodes."""
        self.engines[DECODER].run(
            "begin",
            prompts=prompts,
            max_tokens=[TOKENS] * len(prompts),
            transfers=self.prefill(prompts),
        )

    def finish(self, prompts: list[list[int]]) -> list[list[int] | None]:
        """Waits for the decoder's requests, and judges the tokens of those that
        were not aborted."""
        found = self.engines[DECODER].run("finish")["tokens"]
        pairs = [pair for pair in zip(prompts, found) if pair[1]]
        self.judge(DECODER, *zip(*pairs))
        return found

    def judge(self, i: int, prompts: Any = (), tokens: Any = ()) -> None:
        wrong = self.reference(self.MODELS[i]).wrong(prompts, tokens)
        count = sum(map(len, tokens))
        print(f"engine {i}: {count} tokens, {wrong} wrong", flush=True)
        self.wrong[i] += wrong

    def ask_neighbour(self, count: int = 32) -> list[list[int]]:
        prompts = self.prompts(count)
        self.engines[NEIGHBOUR].ask(
            "generate", prompts=prompts, max_tokens=[64] * count
        )
        return prompts

    def finish_neighbour(self, prompts: list[list[int]]) -> None:
        tokens = self.engines[NEIGHBOUR].answer()["tokens"]
        self.judge(NEIGHBOUR, prompts, tokens)

    def together(self) -> None:
        """Prefills and decodes batch after batch while the neighbour serves."""
        others = self.ask_neighbour()
        while True:
            prompts = self.prompts()
            self.begin(prompts)
            self.finish(prompts)
            if self.engines[NEIGHBOUR].has_answered():
                break
        self.finish_neighbour(others)

    def stats(self, i: int) -> dict[str, Any]:
        return self.engines[i].run("stats")

    def hold(self, name: str) -> pathlib.Path:
        """Creates a file on which reads wait or fail (see nixl_stand_in), until
        it is unlinked."""
        path = self.settings / name
        path.touch()
        return path

    def await_reads(self, count: int) -> None:
        """Until so many are under way."""

        def are_under_way() -> bool:
            stats = self.stats(DECODER)
            return stats["transfers"] - stats["transfers_ended"] >= count

        self.assertTrue(self.eventually(are_under_way))

    def await_no_reads(self) -> None:
        def are_over() -> bool:
            stats = self.stats(DECODER)
            return stats["transfers"] == stats["transfers_ended"]

        self.assertTrue(self.eventually(are_over))

    def check_all(self) -> dict[str, Any]:
        """Returns the decoder's report."""
        reports = [
            {"wrong": self.wrong[i]} | self.stats(i)
            for i in range(3)
            if self.engines[i] is not None
        ]
        print(*reports, sep="\n", flush=True)
        for report in reports:
            self.assertEqual(report["wrong"], 0)
            self.assertEqual(report["driver_calls_serving"], 0)
            self.assertEqual(report["skipped_kernels"], 0)
            for fault in "stray_writes", "dirty_parts":
                self.assertEqual(report[fault], 0, fault)
            for fault in "stray_transfers", "stale_transfers":
                self.assertEqual(report.get(fault, 0), 0, fault)
        return reports[-2]


def nixl(role: str, **more: Any) -> dict[str, Any]:
    return {
        "asynchronous": True,
        "kv_transfer_config": {
            "kv_connector": "NixlConnector",
            "kv_role": role,
            # When the lease ends, a prefiller frees KV that has not been read,
            # and the decoder would read other bytes. On a busy host a batch
            # takes longer than the usual 30 s.
            "kv_connector_extra_config": {"kv_lease_duration": 300},
        }
        | more,
    }


class Trade(Disaggregated):
    def test_every_token_is_right(self) -> None:
        self.start(
            decoder={"FINESERVE_EVICT": "auto", "FINESERVE_ENGINE": "decoder"}
        )
        self.it_stays_on_the_gpu()
        for _ in range(4):
            self.together()
            if self.stats(DECODER)["slabs_returned"] > self.pool_slabs:
                break
        report = self.check_all()
        self.assertGreater(report["slabs_returned"], 0)
        self.assertGreaterEqual(report["transfers"], self.BATCH)
        self.assertEqual(report["transfers_failed"], 0)
        self.aborts_while_blocks_are_read()
        self.a_prefiller_that_dies_costs_no_token()

    def it_stays_on_the_gpu(self) -> None:
        done = self.machine.fsctl("evict", "decoder")
        print(done.stdout, done.stderr)
        self.assertEqual(done.returncode, 1)
        self.assertIn("other devices have the addresses", done.stderr)
        pid = self.stats(DECODER)["pid"]
        said = self.machine.fsctl("explain", str(pid)).stdout
        self.assertRegex(said, "stays: .* handed to another process or device")

    def aborts_while_blocks_are_read(self) -> None:
        hold = self.hold("hold")
        prompts = self.prompts(HELD)
        self.begin(prompts)
        self.await_reads(HELD)
        others = self.ask_neighbour(16)
        self.engines[DECODER].run("abort", indices=list(range(0, HELD, 2)))
        # The neighbour must finish with the slabs that no read holds.
        self.finish_neighbour(others)
        hold.unlink()
        found = self.finish(prompts)
        self.assertEqual(found[0::2], [None] * (HELD // 2))
        self.assertTrue(all(found[1::2]))
        self.await_no_reads()
        self.together()
        self.check_all()

    def a_prefiller_that_dies_costs_no_token(self) -> None:
        hold = self.hold("hold")
        prompts = self.prompts(HELD)
        self.begin(prompts)
        self.await_reads(HELD)
        others = self.ask_neighbour(16)
        kill_9(self.stats(PREFILLER)["pid"])
        hold.unlink()
        found = self.finish(prompts)
        self.assertTrue(all(found))
        self.finish_neighbour(others)
        self.engines[PREFILLER] = None
        report = self.check_all()
        self.assertGreater(report["transfers_failed"], 0)


class OnePool(Disaggregated):
    """All three engines are on one GPU. A batch is read only after all of it
    has been prefilled, so it has to fit into the prefiller's share of the
    pool."""

    ON = [0, 0, 0]
    BATCH = 4

    def test_every_token_is_right_while_slabs_trade(self) -> None:
        self.start()
        self.together()
        self.check_all()


class FailedReads(Disaggregated):
    """A part of each read arrives long after vLLM has released the blocks of
    that read."""

    def fail(self) -> dict[str, Any]:
        before = self.prompts()  # it gets slabs
        self.begin(before)
        self.finish(before)
        fails = self.hold("fail")
        prompts = self.prompts(HELD)
        self.begin(prompts)
        self.assertFalse(any(self.engines[DECODER].run("finish")["tokens"]))
        # It wants the decoder's slabs.
        self.finish_neighbour(self.ask_neighbour())
        fails.unlink()
        self.await_no_reads()
        return self.stats(DECODER)

    def test_what_arrives_late_writes_no_slab_of_another(self) -> None:
        self.start(on_failure="fail")
        report = self.fail()
        self.assertGreater(report["transfers_failed"], 0)
        self.check_all()

    def test_a_failed_read_that_nothing_waits_for_is_noticed(self) -> None:
        self.start(on_failure="fail", decoder=broken("failed read"))
        report = self.fail()
        print(report, self.wrong)
        self.assertGreater(report["stray_transfers"], 0)


class Controls(Disaggregated):
    def test_a_slab_that_goes_while_it_is_read_into_is_noticed(self) -> None:
        self.start(decoder=broken("transfer"))
        stray = 0
        try:
            for _ in range(4):  # which slabs move when differs
                self.together()
                stray = self.stats(DECODER)["stray_transfers"]
                if stray:
                    break
        except EngineEnded as error:
            # Its own checks were first.
            self.assertIn("was leased twice", str(error))
            return
        print(f"stray transfers: {stray}, wrong tokens: {self.wrong}")
        self.assertGreater(stray, 0)

    def test_memory_that_is_registered_too_early_is_noticed(self) -> None:
        self.start(decoder=broken("registration"))
        prompts = self.prompts()
        self.begin(prompts)
        self.finish(prompts)
        self.assertGreater(self.stats(DECODER)["stale_transfers"], 0)


class Refusals(VllmMachine):
    def test_the_connector_that_is_written_to_is_refused(self) -> None:
        self.start_daemon()
        engine = self.start_vllm(
            LARGE,
            view=True,
            kv_transfer_config={
                "kv_connector": "NixlPushConnector",
                "kv_role": "kv_consumer",
            },
        )
        with self.assertRaisesRegex(
            EngineEnded,
            r"RuntimeError: FineServe: the KV connector NixlPushConnector is "
            r"not supported, .*\n",
        ):
            engine.answer()
