"""Allocates the KV cache as vLLM does, in stock PyTorch under the shim. It is
placed in slabs of the running daemon, and nothing else is."""

from __future__ import annotations

import unittest
from typing import Any

from machine import (
    MIB,
    POOL_SLABS,
    SHIM,
    SLAB,
    Engine,
    EngineError,
    Machine,
)

KV = 24 * MIB
KV_SLABS = KV // SLAB


class KvTest(Machine):
    def setUp(self) -> None:
        super().setUp()
        self.daemon = self.start_daemon()

    def kv_engine(self) -> Engine:
        """Starts an engine whose tensors of KV bytes are declared as KV."""
        return self.start_engine(FINESERVE_KV_SIZES=str(KV))

    def allocate_kv(self, engine: Engine) -> None:
        # vLLM's model runner does this for each layer (gpu_model_runner.py,
        # _allocate_kv_cache_tensors).
        engine.run(
            f'kv = torch.zeros({KV}, dtype=torch.int8, device="cuda")'
        )

    def slabs_of(self, engine: Engine) -> int:
        explained = self.fsctl("explain", str(engine.pid))
        return sum(
            run["last"] - run["first"] + 1
            for run in self.fsctl("slabs")["slabs"]
            if run["engine"] and run["engine"] == explained["engine"]
        )

    def decisions(self, engine: Engine) -> list[dict[str, Any]]:
        explained = self.fsctl("explain", "--last", "0", str(engine.pid))
        return explained["decisions"]


class Classified(KvTest):
    def test_tensor_of_a_declared_size_lands_in_slabs_and_nothing_else(
        self,
    ) -> None:
        engine = self.kv_engine()
        engine.run(
            f"""
            weights = torch.ones({40 * MIB}, dtype=torch.uint8, device="cuda")
            small = [torch.zeros(1000, device="cuda") for _ in range(100)]
            """
        )
        self.allocate_kv(engine)
        engine.run(
            f'more = torch.ones({25 * MIB}, dtype=torch.uint8, device="cuda")'
        )
        self.assertEqual(self.slabs_of(engine), KV_SLABS)
        self.assertEqual(
            [(d["bytes"], d["verdict"], d["reason"])
             for d in self.decisions(engine) if d["bytes"] >= 20 * MIB],
            [
                (40 * MIB, "passed through", "no rule says that it is KV"),
                (KV, "redirected", "its size is declared as KV"),
                # PyTorch rounds to 2 MiB.
                (26 * MIB, "passed through", "no rule says that it is KV"),
            ],
        )
        frames = self.decisions(engine)[-1]["frames"]
        self.assertTrue(any("libc10_cuda.so" in f for f in frames), frames)

    def test_kv_holds_what_is_written_beside_everything_else(self) -> None:
        engine = self.kv_engine()
        self.allocate_kv(engine)
        zero, equal, other = engine.run(
            f"""
            zero = not bool(kv.cpu().any())
            other = torch.ones({KV}, dtype=torch.int16, device="cuda")
            host = torch.randint(-128, 127, ({KV},), dtype=torch.int8)
            kv.copy_(host)
            layer = kv.view(torch.float16).view(2, -1)
            out = [zero, torch.equal(kv.cpu(), host),
                   bool((other.cpu() == 1).all())]
            """
        )
        self.assertTrue(zero and equal and other)

    def test_scope_marks_any_size(self) -> None:
        engine = self.start_engine()
        engine.run(
            f"""
            import ctypes
            shim = ctypes.CDLL(None)
            before = torch.zeros({KV}, dtype=torch.int8, device="cuda")
            shim.fs_kv_begin()
            kv = torch.zeros({KV}, dtype=torch.int8, device="cuda")
            shim.fs_kv_end()
            after = torch.zeros({KV}, dtype=torch.int8, device="cuda")
            """
        )
        self.assertEqual(self.slabs_of(engine), KV_SLABS)
        self.assertEqual(
            [d["reason"] for d in self.decisions(engine) if d["bytes"] == KV],
            [
                "no rule says that it is KV",
                "inside fs_kv_begin/end",
                "no rule says that it is KV",
            ],
        )

    def test_mem_pool_on_our_allocator_is_kv_and_comes_back(self) -> None:
        engine = self.start_engine()
        engine.run(
            f"""
            allocator = torch.cuda.memory.CUDAPluggableAllocator(
                "{SHIM}", "fs_torch_malloc", "fs_torch_free")
            pool = torch.cuda.MemPool(allocator.allocator())
            with torch.cuda.use_mem_pool(pool):
                kv = torch.zeros({KV}, dtype=torch.int8, device="cuda")
            other = torch.zeros({KV}, dtype=torch.int8, device="cuda")
            host = torch.randint(-128, 127, ({KV},), dtype=torch.int8)
            kv.copy_(host)
            """
        )
        self.assertEqual(self.slabs_of(engine), KV_SLABS)
        self.assertTrue(engine.run("out = torch.equal(kv.cpu(), host)"))
        engine.run("del kv, pool; torch.cuda.empty_cache()")
        self.assertTrue(
            self.eventually(lambda: self.free_slabs() == POOL_SLABS)
        )

    def test_mem_pool_beyond_the_pool_is_out_of_memory(self) -> None:
        engine = self.start_engine()
        with self.assertRaisesRegex(EngineError, "OutOfMemoryError"):
            engine.run(
                f"""
                allocator = torch.cuda.memory.CUDAPluggableAllocator(
                    "{SHIM}", "fs_torch_malloc", "fs_torch_free")
                pool = torch.cuda.MemPool(allocator.allocator())
                with torch.cuda.use_mem_pool(pool):
                    torch.empty({(POOL_SLABS + 1) * SLAB}, dtype=torch.int8,
                                device="cuda")
                """
            )
        self.assertEqual(self.free_slabs(), POOL_SLABS)


    def test_expandable_segments_and_async_memory_are_not_taken_for_kv(
        self,
    ) -> None:
        for configuration in "expandable_segments:True", "backend:native":
            engine = self.start_engine(PYTORCH_CUDA_ALLOC_CONF=configuration)
            self.allocate_kv(engine)
            self.assertEqual(self.free_slabs(), POOL_SLABS, configuration)


class Traded(KvTest):
    """Two processes: what one frees, the other gets, zeroed."""

    def fill_pool(self, engine: Engine) -> None:
        """Takes KV tensors until fewer slabs are free than one needs."""
        engine.run(
            f"""
            kv = [torch.full(({KV},), 77, dtype=torch.int8, device="cuda")
                  for _ in range({POOL_SLABS // KV_SLABS})]
            torch.cuda.synchronize()
            """
        )

    def take_one(self, engine: Engine) -> bool:
        """Makes a tensor with torch.empty; returns whether it is zero."""
        return engine.run(
            f"""
            kv = torch.empty({KV}, dtype=torch.int8, device="cuda")
            out = not bool(kv.cpu().any())
            """
        )

    def test_freed_kv_goes_to_the_other_process_as_zeros(self) -> None:
        first, second = self.kv_engine(), self.kv_engine()
        self.fill_pool(first)
        with self.assertRaisesRegex(EngineError, "OutOfMemoryError"):
            self.take_one(second)
        first.run("del kv; torch.cuda.empty_cache()")
        self.assertTrue(
            self.eventually(lambda: self.free_slabs() == POOL_SLABS)
        )
        self.assertTrue(self.take_one(second))
        self.assertEqual(self.slabs_of(second), KV_SLABS)
        # And back again.
        second.run(
            "kv.copy_(torch.full_like(kv, 5).cpu()); del kv;"
            "torch.cuda.empty_cache()"
        )
        self.assertTrue(
            self.eventually(lambda: self.free_slabs() == POOL_SLABS)
        )
        self.assertTrue(self.take_one(first))

    def test_killed_process_leaves_its_slabs_to_the_other(self) -> None:
        first, second = self.kv_engine(), self.kv_engine()
        self.fill_pool(first)
        first.kill()
        self.assertTrue(
            self.eventually(lambda: self.free_slabs() == POOL_SLABS)
        )
        self.assertTrue(self.take_one(second))

    def test_kv_outlives_the_daemon(self) -> None:
        engine = self.kv_engine()
        self.allocate_kv(engine)
        engine.run("kv.fill_(9)")
        self.daemon.kill()
        self.daemon.wait()
        self.assertTrue(engine.run("out = bool((kv.cpu() == 9).all())"))
