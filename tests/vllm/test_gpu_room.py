"""Stock vLLM beside a pool of size "auto" (design note 0038): an engine's
weights find room although the pool has taken it, and a sleeper's weights become
KV of others until it wakes up.

On vLLM itself (label vllm), as test_gpu_worker.py.
"""

from __future__ import annotations

import unittest

from gpu_machine import Model, VllmEngine, VllmMachine, random_prompts

LIGHT = Model(layers=6, seed=1)
HEAVY = Model(layers=160, seed=3)  # 150 MiB of weights
WEIGHTS = 150 << 20
# Prompt and LONG output tokens together make the longest request.
PROMPT = (200, 300)
LONG = 200


class Room(VllmMachine):
    """Pools that initially take nearly all of a small device."""

    slab_bytes = 10 << 20  # two blocks of the heavy one
    device_memory = 280 << 20
    AUTO = ("--pool", "auto", "--reserve", "64MiB", "--headroom", "24MiB")

    def ask(
        self, engine: VllmEngine, seed: int, requests: int, tokens: int
    ) -> list[list[int]]:
        length = PROMPT if tokens == LONG else (30, 40)
        prompts = random_prompts(seed, requests, length)
        engine.ask("generate", prompts=prompts, max_tokens=[tokens] * requests)
        return prompts

    def finish(
        self, engine: VllmEngine, model: Model, prompts: list[list[int]]
    ) -> None:
        tokens = engine.answer()["tokens"]
        wrong = self.reference(model).wrong(prompts, tokens)
        print(f"{sum(map(len, tokens))} tokens, {wrong} wrong", flush=True)
        self.assertEqual(wrong, 0)

    def serve(self, engine: VllmEngine, model: Model, seed: int) -> None:
        self.finish(engine, model, self.ask(engine, seed, 8, 20))


class RoomTest(Room):
    """The light engine can use 19 slabs at once."""

    def setUp(self) -> None:
        super().setUp()
        self.start_daemon(*self.AUTO)

    def pool_bytes(self) -> int:
        return self.fsctl("slabs")["pool_bytes"]

    def test_weights_find_room_and_a_sleepers_become_kv(self) -> None:
        light = self.start_vllm(LIGHT, view=True, runner=1)
        light.answer()
        before = self.pool_bytes()
        self.assertGreater(before, WEIGHTS)
        asked = self.ask(light, seed=1, requests=40, tokens=LONG)
        heavy = self.start_vllm(
            HEAVY,
            view=True,
            runner=1,
            max_model_len=64,
            enable_sleep_mode=True,
        )
        print("start", heavy.answer()["seconds"], flush=True)
        small = self.pool_bytes()
        print(f"pool: {before >> 20} MiB, with {small >> 20} MiB", flush=True)
        self.assertLess(small, before - WEIGHTS // 2)
        self.serve(heavy, HEAVY, seed=2)
        self.finish(light, LIGHT, asked)

        self.assertEqual(heavy.run("sleep", level=1), ["asleep"])
        (view,) = [
            view for view in self.fsctl("slabs")["views"] if view["suspended"]
        ]
        print(f"given up: {view['given_up_bytes'] >> 20} MiB", flush=True)
        self.assertGreater(view["given_up_bytes"], WEIGHTS * 9 // 10)
        # The pool grows only after a while, because it has just given memory
        # back.
        rounds = 0
        while self.pool_bytes() < small + WEIGHTS // 4:
            rounds += 1
            self.assertLess(rounds, 100)
            self.finish(
                light,
                LIGHT,
                self.ask(light, 10 + rounds, requests=32, tokens=LONG),
            )
        large = self.pool_bytes()
        print(f"beside the sleeper: {large >> 20} MiB", flush=True)

        asked = self.ask(light, seed=3, requests=32, tokens=LONG)
        self.assertEqual(heavy.run("wake_up"), [])
        woken = self.pool_bytes()
        print(f"woken: {woken >> 20} MiB", flush=True)
        # The pool shrinks, unless the headroom was enough.
        self.assertLessEqual(woken, large)
        self.serve(heavy, HEAVY, seed=4)
        self.finish(light, LIGHT, asked)
