"""Runs stock PyTorch on the emulated device, first without the shim, then under
it with nothing declared as KV. The same must hold in both."""

from __future__ import annotations

import unittest

from machine import (
    CONTEXT_MEMORY,
    DEVICE_MEMORY,
    MIB,
    POOL_SLABS,
    SLAB,
    EngineError,
    Machine,
)

BLOCK = 64 * MIB


class Plain(Machine):
    shim = False
    # How many bytes of the device the engine can get, besides its context.
    memory = DEVICE_MEMORY - CONTEXT_MEMORY

    def test_device_is_there_and_described(self) -> None:
        engine = self.start_engine()
        found = engine.run(
            """
            p = torch.cuda.get_device_properties(0)
            out = [torch.cuda.is_available(), torch.cuda.device_count(),
                   p.name, p.total_memory, p.major, p.multi_processor_count > 0]
            """
        )
        self.assertEqual(
            found, [True, 1, "FineServe emulated GPU", DEVICE_MEMORY, 8, True]
        )

    def test_bytes_come_back_as_they_went_in(self) -> None:
        engine = self.start_engine()
        equal = engine.run(
            """
            out = []
            for dtype in torch.uint8, torch.float16, torch.float32, torch.int64:
                host = torch.randint(0, 100, (777, 333)).to(dtype)
                device = host.cuda()
                twin = torch.empty_like(device).copy_(device)
                out.append(torch.equal(twin.cpu(), host))
            pinned = torch.arange(1 << 20).pin_memory()
            device = pinned.to("cuda", non_blocking=True)
            back = torch.empty_like(pinned).pin_memory()
            back.copy_(device, non_blocking=True)
            torch.cuda.synchronize()
            out.append(torch.equal(back, pinned))
            """
        )
        self.assertEqual(equal, [True] * 5)

    def test_fills_are_truthful(self) -> None:
        engine = self.start_engine()
        values = engine.run(
            """
            def distinct(tensor):
                return [x.item() for x in tensor.cpu().unique()]
            old = torch.full((1000,), 7, dtype=torch.uint8, device="cuda")
            del old
            out = [
                distinct(torch.zeros(1000, dtype=torch.int8, device="cuda")),
                distinct(torch.ones(999, dtype=torch.float64, device="cuda")),
                distinct(torch.full((31, 5), 2.5, device="cuda")),
                distinct(torch.full((64,), -3.0, dtype=torch.bfloat16,
                                    device="cuda")),
                distinct(torch.empty(5, dtype=torch.bool,
                                     device="cuda").fill_(True)),
            ]
            """
        )
        self.assertEqual(values, [[0], [1], [2.5], [-3], [True]])

    def test_kernels_that_cannot_run_are_counted(self) -> None:
        engine = self.start_engine()
        before, after = engine.run(
            """
            import ctypes
            skipped = ctypes.CDLL("libcuda.so.1").emucuda_skipped_launches
            x = torch.zeros(8, device="cuda")
            before = skipped()
            x.add_(1)
            torch.cuda.synchronize()
            out = [before, skipped()]
            """
        )
        self.assertEqual((before, after), (0, 1))

    def test_caching_allocator_reuses_and_gives_back(self) -> None:
        engine = self.start_engine()
        same, peak, kept, released, free = engine.run(
            f"""
            x = torch.empty({BLOCK}, dtype=torch.uint8, device="cuda")
            address = x.data_ptr()
            del x
            x = torch.empty({BLOCK}, dtype=torch.uint8, device="cuda")
            same = x.data_ptr() == address
            peak = torch.cuda.max_memory_allocated()
            del x
            kept = torch.cuda.memory_reserved()
            torch.cuda.empty_cache()
            out = [same, peak, kept, torch.cuda.memory_reserved(),
                   torch.cuda.mem_get_info()[0]]
            """
        )
        self.assertTrue(same)
        self.assertEqual((peak, kept, released), (BLOCK, BLOCK, 0))
        self.assertEqual(free, self.memory)

    def test_out_of_memory_is_an_exception_and_not_the_end(self) -> None:
        engine = self.start_engine()
        engine.run('x = torch.empty(700 << 20, dtype=torch.uint8, device="cuda")')
        with self.assertRaisesRegex(EngineError, "OutOfMemoryError"):
            engine.run(
                'torch.empty(700 << 20, dtype=torch.uint8, device="cuda")'
            )
        ooms, usable = engine.run(
            """
            del x
            x = torch.zeros(700 << 20, dtype=torch.uint8, device="cuda")
            out = [torch.cuda.memory_stats()["num_ooms"], x[-1].item() == 0]
            """
        )
        self.assertEqual((ooms, usable), (1, True))

    def test_expandable_segment_grows_and_keeps_its_data(self) -> None:
        engine = self.start_engine(
            PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
        )
        grown, intact, reserved, free = engine.run(
            """
            host = torch.randint(0, 255, (30 << 20,), dtype=torch.uint8)
            x = host.cuda()
            y = torch.ones(50 << 20, dtype=torch.uint8, device="cuda")
            segments = torch.cuda.memory_snapshot()
            grown = [(s["is_expandable"], s["total_size"] >> 20)
                     for s in segments]
            intact = torch.equal(x.cpu(), host) and bool((y.cpu() == 1).all())
            del x, y
            torch.cuda.empty_cache()
            out = [grown, intact, torch.cuda.memory_reserved(),
                   torch.cuda.mem_get_info()[0]]
            """
        )
        self.assertEqual(grown, [[True, 80]])
        self.assertTrue(intact)
        self.assertEqual((reserved, free), (0, self.memory))

    def test_streams_wait_for_events(self) -> None:
        engine = self.start_engine()
        equal, elapsed = engine.run(
            """
            host = torch.arange(1 << 20).pin_memory()
            device = torch.empty_like(host, device="cuda")
            back = torch.empty_like(host).pin_memory()
            first, second = torch.cuda.Stream(), torch.cuda.Stream()
            start, copied = (torch.cuda.Event(enable_timing=True)
                             for _ in range(2))
            with torch.cuda.stream(first):
                start.record()
                device.copy_(host, non_blocking=True)
                copied.record()
            with torch.cuda.stream(second):
                second.wait_event(copied)
                back.copy_(device, non_blocking=True)
            second.synchronize()
            out = [torch.equal(back, host), start.elapsed_time(copied)]
            """
        )
        self.assertTrue(equal)
        self.assertGreaterEqual(elapsed, 0)

    def test_stream_ordered_allocator_works_as_backend(self) -> None:
        engine = self.start_engine(
            PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"
        )
        backend, equal = engine.run(
            """
            host = torch.randint(0, 255, (10 << 20,), dtype=torch.uint8)
            out = [torch.cuda.get_allocator_backend(),
                   torch.equal(host.cuda().cpu(), host)]
            """
        )
        self.assertEqual((backend, equal), ("cudaMallocAsync", True))

    def test_tensor_is_shared_with_another_process(self) -> None:
        # Does as torch.multiprocessing: the reduced form of a tensor contains a
        # cudaIpcMemHandle_t.
        producer, consumer = self.start_engine(), self.start_engine()
        form = producer.run(
            """
            import base64
            from multiprocessing.reduction import ForkingPickler
            import torch.multiprocessing
            shared = torch.arange(1000.).cuda()
            torch.cuda.synchronize()
            out = base64.b64encode(ForkingPickler.dumps(shared)).decode()
            """
        )
        seen = consumer.run(
            f"""
            import base64, pickle
            import torch.multiprocessing
            shared = pickle.loads(base64.b64decode("{form}"))
            out = torch.equal(shared.cpu(), torch.arange(1000.))
            shared.copy_(torch.full((1000,), 9.0))
            torch.cuda.synchronize()
            """
        )
        self.assertTrue(seen)
        self.assertTrue(producer.run("out = bool((shared.cpu() == 9).all())"))
        consumer.run("del shared; torch.cuda.ipc_collect()")

    def test_captured_graph_runs_at_each_replay(self) -> None:
        engine = self.start_engine()
        before, filled, copied = engine.run(
            """
            x, y = (torch.zeros(8, device="cuda") for _ in range(2))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                x.fill_(3)
                y.copy_(x)
            before = x.tolist() + y.tolist()
            for _ in range(2):
                x.zero_()
                y.zero_()
                graph.replay()
            out = [before, x.tolist(), y.tolist()]
            """
        )
        self.assertEqual(before, [0] * 16)
        self.assertEqual((filled, copied), ([3] * 8, [3] * 8))

    def test_capture_survives_what_is_allocated_in_it(self) -> None:
        engine = self.start_engine()
        kept = engine.run(
            """
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made = torch.full((8 * 1024 * 1024,), 5.0, device="cuda")
            graph.replay()
            out = made[:4].tolist() + made[-4:].tolist()
            """
        )
        self.assertEqual(kept, [5] * 8)

    def test_forked_child_learns_that_it_cannot(self) -> None:
        engine = self.start_engine()
        answer = engine.run(
            """
            import os
            torch.zeros(1, device="cuda")
            read, write = os.pipe()
            if os.fork() == 0:
                try:
                    torch.zeros(1, device="cuda")
                    os.write(write, b"it can")
                except RuntimeError as error:
                    os.write(write, str(error).encode())
                os._exit(0)
            out = os.read(read, 1000).decode()
            os.wait()
            """
        )
        self.assertIn("Cannot re-initialize CUDA in forked subprocess", answer)


class UnderShim(Plain):
    shim = True
    # The daemon has a context, too.
    memory = DEVICE_MEMORY - 2 * CONTEXT_MEMORY - POOL_SLABS * SLAB

    def setUp(self) -> None:
        super().setUp()
        self.start_daemon()

    def tearDown(self) -> None:
        self.assertEqual(self.free_slabs(), POOL_SLABS)
        super().tearDown()
