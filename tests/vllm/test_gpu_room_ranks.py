"""Stock vLLM on two GPUs whose pools have size "auto" (design note 0038): what one
pool gave up for another engine's weights and took back is used again.

As test_gpu_room.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest

from gpu_machine import REAL_GPU, Model
from several_gpus import PoolsOfGpus
from test_gpu_room import HEAVY, LONG, WEIGHTS, Room

# A slab has 40 blocks, and 32 of its longest requests take 24 slabs.
WIDE = Model(layers=16, seed=12)


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class RanksInRoom(PoolsOfGpus, Room):
    """An engine on both GPUs, and a heavy one on the second."""

    SLABS = [0, 0]  # not given

    def pool_slabs_of(self, gpu: int) -> int:
        pool = self.of_gpu(self.gpus[gpu], "slabs")["pool_bytes"]
        return pool // self.slab_bytes

    def test_what_a_pool_took_back_is_used(self) -> None:
        self.start_daemon(*self.AUTO)
        wide = self.start_vllm(
            WIDE, view=True, tensor_parallel_size=2, max_num_seqs=32
        )
        wide.answer()
        before = self.pool_slabs_of(1)
        asked = self.ask(wide, seed=1, requests=16, tokens=LONG)
        heavy = self.start_vllm(
            HEAVY,
            view=True,
            environment={"CUDA_VISIBLE_DEVICES": "1"},
            max_model_len=64,
        )
        print("start", heavy.answer()["seconds"], flush=True)
        small = self.pool_slabs_of(1)
        print(f"pools: {before} slabs, with {small}", flush=True)
        self.assertLess(small, before - WEIGHTS // self.slab_bytes // 2)
        self.serve(heavy, HEAVY, seed=2)
        self.finish(wide, WIDE, asked)
        heavy.kill()

        most = 0
        for seed in range(10, 40):
            asked = self.ask(wide, seed, requests=32, tokens=LONG)
            while not wide.has_answered():
                held = [view["leased"] for view in self.views()]
                most = max(most, min(held))
            self.finish(wide, WIDE, asked)
            if most > small + 2:
                break
        print(f"{most} slabs held on both GPUs", flush=True)
        self.assertGreater(most, small + 2)
        for rank in wide.run("stats_of_all"):
            print(rank, flush=True)
            for fault in "stray_writes", "dirty_parts", "skipped_kernels":
                self.assertEqual(rank[fault], 0, fault)


if __name__ == "__main__":
    unittest.main()
