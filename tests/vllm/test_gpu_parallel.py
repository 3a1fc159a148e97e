"""Stock vLLM over several emulated GPUs gives the tokens that transformers
gives on the CPU: tensor parallel, pipeline parallel.

On vLLM itself (label vllm). Each worker is a process with a device of its own;
collectives are those of the emulated device's libnccl.so.2, in the streams'
order (design note 0026).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import REAL_GPU, Model, VllmEngine, VllmMachine, random_prompts

# Four heads: one for each of four ranks. The ranks' partial sums are added in
# single precision, in their order: the resulting difference of the logits is
# within gpu_machine.TOLERANCE, as with one rank.
MODEL = Model(layers=4, seed=1)
PROMPTS = 16
TOKENS = 16  # of each


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class Parallel(VllmMachine):
    device_memory = 512 << 20

    def start(self, ranks: int, runner: int = 2, **arguments: Any) -> VllmEngine:
        self.environment["EMUCUDA_DEVICES"] = str(ranks)
        return self.start_vllm(MODEL, view=False, runner=runner, **arguments)

    def serve(self, engine: VllmEngine, seed: int) -> int:
        """Generates 256 tokens; returns how many of them are wrong."""
        prompts = random_prompts(seed, PROMPTS, (5, 100), shared=48)
        answer = engine.run(
            "generate", prompts=prompts, max_tokens=[TOKENS] * PROMPTS
        )
        tokens = answer["tokens"]
        count = sum(map(len, tokens))
        wrong = self.reference(MODEL).wrong(prompts, tokens)
        print(
            f"{count} tokens, {wrong} wrong, "
            f"{count / answer['seconds']:.0f} tokens/s",
            flush=True,
        )
        self.assertEqual(count, PROMPTS * TOKENS)
        return wrong

    def check(self, engine: VllmEngine, ranks: int) -> None:
        """All tokens are right, and every rank's operators really ran, while
        the program went on."""
        print("start", engine.answer()["seconds"], flush=True)
        self.assertEqual(self.serve(engine, seed=ranks), 0)
        stats = engine.run("stats_of_all")
        print(*stats, sep="\n", flush=True)
        self.assertEqual(len({rank["pid"] for rank in stats}), ranks)
        self.assertEqual(
            {rank["device"] for rank in stats}, set(range(ranks))
        )
        for rank in stats:
            self.assertEqual(rank["skipped_kernels"], 0)
            waited = sum(rank["waited"].values())
            self.assertGreater(rank["enqueued"], 100 * waited)
        engine.kill()

    def test_tensor_parallel(self) -> None:
        for ranks, runner in (1, 2), (2, 1), (2, 2), (4, 2):
            with self.subTest(ranks=ranks, runner=runner):
                self.check(
                    self.start(ranks, runner, tensor_parallel_size=ranks),
                    ranks,
                )

    # Not with model runner 1, which overwrites its inputs: note 0026, Limits.
    def test_pipeline_parallel(self) -> None:
        self.check(self.start(2, runner=2, pipeline_parallel_size=2), 2)

    def test_tensor_and_pipeline_parallel(self) -> None:
        engine = self.start(
            4, tensor_parallel_size=2, pipeline_parallel_size=2
        )
        self.check(engine, 4)

    def test_a_sum_left_out_is_noticed(self) -> None:
        engine = self.start(
            2,
            tensor_parallel_size=2,
            environment={"HOST_DEVICE_BREAK": "all-reduce"},
        )
        engine.answer()
        self.assertGreater(self.serve(engine, seed=2), 0)
