"""Tests the machine that the tests of PyTorch run on. Needs no PyTorch."""

import signal
import time
import unittest

import machine


class MachineTest(machine.Machine):
    def test_a_daemon_that_logs_more_than_a_pipe_holds_goes_on(self) -> None:
        daemon = self.start_daemon()
        for _ in range(1500):  # about 100 bytes each
            daemon.send_signal(signal.SIGHUP)
            time.sleep(0.001)
        daemon.terminate()
        self.assertEqual(daemon.wait(machine.DEADLINE_S), 0)
