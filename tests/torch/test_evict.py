"""A stock PyTorch script that leaves the GPU and comes back, while another one
computes and uses its memory. FINESERVE_TEST_ROUNDS sets how often it leaves."""

from __future__ import annotations

import os
import unittest

from machine import MIB, Machine

ROUNDS = int(os.environ.get("FINESERVE_TEST_ROUNDS", "6"))
WEIGHTS, WEIGHT = 4, 10 * MIB
# Bytes that a captured graph copies a weight to. Each segment has a different
# size.
MIRROR = 12 * MIB
KV = 12 * MIB


class Evicted(Machine):
    pool_slabs = 4
    device_memory = 96 * MIB  # either the script's weights or the other's take

    def setUp(self) -> None:
        super().setUp()
        self.start_daemon()
        self.script = self.start_engine(
            FINESERVE_EVICT="auto", FINESERVE_ENGINE="script"
        )
        self.script.run(
            f"""
            def contents(seed):
                made = torch.Generator().manual_seed(seed)
                return torch.randint(0, 255, ({WEIGHT},), dtype=torch.uint8,
                                     generator=made)
            host = [contents(i) for i in range({WEIGHTS})]
            weights = [one.cuda() for one in host]
            mirror = torch.zeros({MIRROR}, dtype=torch.uint8, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                mirror[:{WEIGHT}].copy_(weights[0])
            places = [one.data_ptr() for one in weights + [mirror]]
            def change(seed):
                i = seed % {WEIGHTS}
                host[i] = contents(seed)
                weights[i].copy_(host[i])
            def wrong():
                mirror.zero_()
                graph.replay()
                found = [one.cpu() for one in weights + [mirror[:{WEIGHT}]]]
                pairs = zip(found, host + [host[0]])
                return sum(int((one != other).sum()) for one, other in pairs)
            """
        )
        self.other = self.start_engine(
            FINESERVE_KV_SIZES=str(KV), FINESERVE_ENGINE="other"
        )
        self.other.run(
            f"""
            import threading
            host = torch.randint(0, 100, ({KV},), dtype=torch.uint8)
            ends, loops, differs = False, 0, 0
            def serve():
                global loops, differs
                while not ends:
                    kv = torch.empty({KV}, dtype=torch.uint8, device="cuda")
                    kv.copy_(host)
                    differs += not torch.equal(kv.cpu(), host)
                    del kv
                    loops += 1
            serving = threading.Thread(target=serve)
            serving.start()
            """
        )

    def move(self, verb: str, says: str) -> None:
        done = self.machine.fsctl(verb, "script")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(says, done.stdout)

    def takes_its_room(self, round_: int) -> None:
        """Gives this memory to the other script, which must find in it what it
        wrote."""
        self.assertTrue(
            self.other.run(
                f"""
                room = torch.full(({WEIGHTS * WEIGHT},), {round_ % 251},
                                  dtype=torch.uint8, device="cuda")
                out = bool((room.cpu() == {round_ % 251}).all())
                """
            )
        )

    def gives_it_back(self) -> None:
        self.other.run("del room; torch.cuda.empty_cache()")

    def test_every_byte_is_right_however_often_it_leaves(self) -> None:
        wrong = 0
        for round_ in range(ROUNDS):
            self.script.run(f"change({1000 + round_})")
            self.move("evict", "left the GPU")
            self.takes_its_room(round_)
            if round_ % 3 == 0:
                # The script's access waits behind the gate until there is room.
                self.script.ask("out = wrong()")
                self.gives_it_back()
                wrong += self.script.answer()
                continue
            self.gives_it_back()
            if round_ % 3 == 1:
                self.move("activate", "is on the GPU")
            wrong += self.script.run("out = wrong()")
        compared = ROUNDS * (WEIGHTS + 1) * WEIGHT
        loops, differs = self.other.run(
            "ends = True; serving.join(); out = [loops, differs]"
        )
        print(
            f"{ROUNDS} evictions, {compared} bytes compared, {wrong} wrong; "
            f"the other: {loops} tensors of KV, {differs} wrong",
            flush=True,
        )
        self.assertEqual((wrong, differs), (0, 0))
        self.assertGreater(loops, ROUNDS)
        self.assertTrue(
            self.script.run(
                "out = places == [x.data_ptr() for x in weights + [mirror]]"
            )
        )


if __name__ == "__main__":
    unittest.main()
