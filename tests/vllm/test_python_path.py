"""LD_PRELOAD alone suffices: the shim shows Python the plugins beside it."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SHIM = pathlib.Path(
    os.environ["FINESERVE_BUILD_DIR"], "lib/libfineserve_shim.so"
).resolve()
PLUGINS = f"{SHIM.parent / 'vllm'}:{SHIM.parent / 'sglang'}"
# Prints the plugins that importlib.metadata finds, as the engines' loaders look
# for them, and $PYTHONPATH.
LOOK = (
    "import os; from importlib.metadata import entry_points; "
    "print([e.value for group in ('vllm.general_plugins', "
    "'sglang.srt.plugins') for e in entry_points(group=group) "
    "if e.name == 'fineserve'], os.environ.get('PYTHONPATH'))"
)
FOUND = [
    "fineserve_vllm.plugin:register",
    "fineserve_sglang.plugin:register",
]


class PythonPathTest(unittest.TestCase):
    def look(
        self,
        *options: str,
        program: str = LOOK,
        shim: pathlib.Path = SHIM,
        **environment: str,
    ) -> str:
        own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            [sys.executable, *options, "-c", program],
            env=own | {"LD_PRELOAD": str(shim)} | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        self.errors = done.stderr
        return done.stdout.strip()

    def test_the_plugins_entry_points_are_found(self) -> None:
        self.assertEqual(self.look(), f"{FOUND} {PLUGINS}")
        self.assertEqual(self.errors, "")

    def test_the_users_path_stays_behind(self) -> None:
        self.assertEqual(
            self.look(PYTHONPATH="/a:/b"), f"{FOUND} {PLUGINS}:/a:/b"
        )

    def test_children_get_the_folder_once(self) -> None:
        program = (
            f"import subprocess, sys; "
            f"subprocess.run([sys.executable, '-c', {LOOK!r}])"
        )
        self.assertEqual(
            self.look(program=program, PYTHONPATH="/a"),
            f"{FOUND} {PLUGINS}:/a",
        )

    def test_a_library_without_a_plugin_beside_it_changes_nothing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            alone = pathlib.Path(shutil.copy(SHIM, folder))
            self.assertEqual(self.look(shim=alone), "[] None")

    def test_a_link_to_the_library_leads_to_the_plugin(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            link = pathlib.Path(folder, SHIM.name)
            link.symlink_to(SHIM)
            self.assertEqual(self.look(shim=link), f"{FOUND} {PLUGINS}")

    def test_switched_off_the_shim_changes_nothing(self) -> None:
        self.assertEqual(self.look(FINESERVE_DISABLE="1"), "[] None")

    def test_python_that_ignores_its_environment_is_reported(self) -> None:
        for option in "-E", "-I":
            with self.subTest(option):
                self.assertEqual(self.look(option), "[] None")
                self.assertEqual(self.errors, "")
                self.look(option, FINESERVE_VIEW="1")
                self.assertRegex(self.errors, "^fineserve: .* no view\n$")

    def test_other_programs_keep_their_environment(self) -> None:
        said = subprocess.run(
            ["env"],
            env={"LD_PRELOAD": str(SHIM), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self.assertNotIn("PYTHONPATH", said)
