"""The slabs that wait for a connector's reads, and the memory that it registers.

Runs on vLLM if it is installed, else on the doubles.
"""

from __future__ import annotations

import types
import unittest
from typing import Any
from unittest import mock

import doubles

REAL = doubles.prepare()

from fineserve_vllm import receives, registration, transfers  # noqa: E402
from fineserve_vllm.grants import InMemoryGrants  # noqa: E402
from fineserve_vllm.pool import LeasedBlockPool  # noqa: E402

PER_SLAB = 10


def step(**reads: Any) -> Any:
    """Returns a step's output; `reads`: the groups of blocks that each request
    reads."""
    return types.SimpleNamespace(
        kv_connector_metadata=types.SimpleNamespace(
            reqs_to_recv={
                name: types.SimpleNamespace(local_block_ids=groups)
                for name, groups in reads.items()
            }
        )
    )


def result(
    *finished: str, failed: Any = (), invalid: Any = ()
) -> Any:
    return types.SimpleNamespace(
        finished_recving=set(finished) or None,
        failed_recving=set(failed),
        invalid_block_ids=set(invalid),
    )


class ReceivesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.receives = receives.Receives()
        self.grants = InMemoryGrants.uniform(3, PER_SLAB, leased=[1, 2, 3])
        self.pool = LeasedBlockPool(40, True, 16, grants=self.grants)
        self.pool.held_by_connector = self.receives.blocks

    def leave(self, *indices: int) -> list[int]:
        for index in indices:
            self.grants.ask_back(index)
        self.pool.apply(self.grants.poll())
        return self.pool.return_drained()

    def test_a_slab_waits_until_the_read_of_its_blocks_is_reported(self) -> None:
        """This holds even if vLLM has freed one of the blocks."""
        self.receives.step_built(step(a=([22, 23], [31]), b=([], [])))
        self.assertEqual(self.leave(1, 2, 3), [1])
        self.receives.step_processed(None)
        self.receives.step_processed(result())
        self.assertEqual(self.pool.return_drained(), [])
        self.receives.step_processed(result("a"))
        self.assertEqual(self.pool.return_drained(), [2, 3])

    def test_a_failed_read_holds_its_blocks_for_good(self) -> None:
        for failure in {"failed": ["a"]}, {"invalid": [22]}:
            with self.subTest(failure):
                self.receives = receives.Receives()
                self.receives.step_built(step(a=([22],), b=([23],)))
                self.receives.step_processed(result("a", "b", **failure))
                self.assertEqual(self.receives.blocks(), {22})
                self.receives.step_built(step(a=([22],)))
                self.receives.step_processed(result("a"))
                self.assertEqual(self.receives.blocks(), {22})

    def test_reads_of_one_request_end_together(self) -> None:
        self.receives.step_built(step(a=([11],)))
        self.receives.step_built(step(a=([12],)))
        self.assertEqual(self.receives.blocks(), {11, 12})
        self.receives.step_processed(result("a"))
        self.assertEqual(self.receives.blocks(), set())

    @unittest.skipUnless(REAL, "vLLM is not installed")
    def test_vllm_says_what_is_read_and_what_has_been(self) -> None:
        from vllm.distributed.kv_transfer.kv_connector.v1 import nixl
        from vllm.v1.outputs import KVConnectorOutput

        self.assertEqual(nixl.NixlConnector.__name__, transfers.NIXL)
        metadata = nixl.NixlConnectorMetadata()
        metadata.add_new_req_to_recv(
            request_id="a",
            local_block_ids=([11, 12],),
            kv_transfer_params=dict.fromkeys(
                f"remote_{name}"
                for name in ("block_ids", "engine_id", "request_id", "host", "port")
            ),
        )
        self.receives.step_built(
            types.SimpleNamespace(kv_connector_metadata=metadata)
        )
        self.assertEqual(self.receives.blocks(), {11, 12})
        self.receives.step_processed(
            KVConnectorOutput(finished_recving={"a"})
        )
        self.assertEqual(self.receives.blocks(), set())


class RegistrationTest(unittest.TestCase):
    def setUp(self) -> None:
        self.registered: list[Any] = []
        test = self

        class Connector:
            def register_kv_caches(self, kv_caches: Any) -> None:
                test.registered.append((self, kv_caches))

        self.connector = Connector
        factory = types.SimpleNamespace(
            KVConnectorFactory=types.SimpleNamespace(
                get_connector_class=lambda config: Connector
            )
        )
        self.factory = mock.patch.dict(
            "sys.modules", {registration._FACTORY: factory}
        )
        self.config = types.SimpleNamespace(kv_transfer_config=None)

    def test_memory_is_registered_when_the_view_is_active(self) -> None:
        its = registration.Registration()
        with self.factory:
            its.defer(self.config)
            its.defer(self.config)
        connector = self.connector()
        connector.register_kv_caches("scratch")
        self.assertEqual(self.registered, [])
        its.view_is_active()
        self.assertEqual(self.registered, [(connector, "scratch")])
        connector.register_kv_caches("more")
        self.assertEqual(self.registered[1:], [(connector, "more")])

    def test_a_missing_name_is_an_error(self) -> None:
        del self.connector.register_kv_caches
        with self.factory, self.assertRaisesRegex(RuntimeError, "not supported"):
            registration.Registration().defer(self.config)
