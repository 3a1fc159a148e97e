"""Stock SGLang releases its memory when it is called to, and takes it back
(label sglang). FINESERVE_TEST_ROUNDS sets how often."""

from __future__ import annotations

from sglang_machine import SglangTrade  # sets the path, too
import eviction


class Released(eviction.Evictable, SglangTrade):
    """The first engine is called to release its memory, as a trainer on the same
    GPU does. Its flag would load a library in place of the shim."""

    ARGUMENTS = [{"enable_memory_saver": True}, {}]

    def is_evicted(self) -> bool:
        return bool(self.engine_of(0)["memory"]["evicted_bytes"])

    def other_serves(self, requests: int = 8) -> None:
        self.assertTrue(self.view_of(0)["suspended"])
        self.assertEqual(self.held(0), 0)
        self.serve(1, requests)

    def test_every_token_is_right_after_it_has_released_its_memory(
        self,
    ) -> None:
        for i in range(2):
            self.serve(i, 32)
        for _ in range(eviction.ROUNDS // 2):
            self.engines[0].run("release")
            self.other_serves()
            self.assertTrue(self.is_evicted())
            self.engines[0].run("resume")
            self.assertFalse(self.is_evicted())
            self.serve(0)
        # As a trainer does that updates weights in between.
        self.engines[0].run("release", tags=["kv_cache"])
        self.other_serves(48)  # takes all slabs
        self.assertFalse(self.is_evicted())
        self.engines[0].run("release", tags=["weights"])
        self.assertTrue(self.is_evicted())
        self.engines[0].run("resume", tags=["weights"])
        self.assertFalse(self.is_evicted())
        self.assertTrue(self.engines[0].run("reload_weights"))
        self.other_serves()
        self.engines[0].run("resume", tags=["kv_cache"])
        self.serve(0)
        # A request instead of a call.
        self.engines[0].run("release")
        self.serve(0)
        self.assertFalse(self.is_evicted())
        self.check_all()
