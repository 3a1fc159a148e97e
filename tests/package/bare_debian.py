"""Boots a bare Debian 12 under systemd, in a container without a network, to
install our packages on."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

ARCHIVE = pathlib.Path(
    os.environ.get("FINESERVE_DEBIAN")
    or pathlib.Path.home() / ".cache/fineserve/debian-12.tar"
)
SOURCE = pathlib.Path(__file__).parent.parent.parent
BOOT_S = 120
# How this machine reaches others: names, proxies, certificates.
_NETWORK = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/apt/apt.conf.d/*",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
)
# The cgroup hierarchies in which systemd may keep processes apart, depending on
# the machine.
_CGROUPS = (
    pathlib.Path("/sys/fs/cgroup/systemd"),
    pathlib.Path("/sys/fs/cgroup/unified"),
    pathlib.Path("/sys/fs/cgroup"),
)


def why_not() -> str:
    """Returns why such a machine cannot be booted here; empty if it can."""
    if os.geteuid() != 0:
        return "needs root, to boot a container"
    for program in ("systemd-nspawn", "nsenter"):
        if shutil.which(program) is None:
            return f"no {program} here: run scripts/setup --package"
    if not ARCHIVE.is_file():
        return f"no {ARCHIVE} here: run scripts/setup --package"
    return ""


def make_packages(folder: pathlib.Path, preset: str, revision: int) -> None:
    """Makes all of our packages from that preset's build."""
    subprocess.run(
        [
            *(str(SOURCE / "scripts/package"), "--preset", preset),
            *("--output", str(folder), "--revision", str(revision)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


class Machine:
    """A machine whose files are in a temporary folder; close() ends and removes
    it."""

    def __init__(self) -> None:
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="fineserve-debian-"))
        self._container: subprocess.Popen[bytes] | None = None
        self._cgroups: list[pathlib.Path] = []
        self.leader = 0
        _check(["tar", "-C", str(self.root), "-xf", str(ARCHIVE)])

    def fetch_dependencies(self, packages: Sequence[str]) -> None:
        """Fetches what `packages` (paths in the machine) depend on into apt's
        cache before the machine boots, because it will then have no network."""
        self.lend_network()
        chroot = ["chroot", str(self.root), "env", "DEBIAN_FRONTEND=noninteractive"]
        _check([*chroot, "apt-get", "update", "-qq"])
        _check(
            [*chroot, "apt-get", "install", "-qq", "--download-only", *packages]
        )

    def lend_network(self) -> None:
        """Lets the machine use this machine's network, in the same way, until
        it boots."""
        for file in _NETWORK:
            for lent in pathlib.Path("/").glob(file):
                to = self.root / lent.relative_to("/")
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(lent, to)

    def before_boot(self, folder: str, command: str) -> None:
        """Runs a line of shell as root in `folder` of the machine, with this
        machine's network. It must succeed."""
        _check(
            [
                *("systemd-nspawn", "--quiet", f"--directory={self.root}"),
                *("--register=no", "--keep-unit", "--console=pipe", "--as-pid2"),
                *("--setenv=HOME=/root", "--setenv=DEBIAN_FRONTEND=noninteractive"),
                *("sh", "-c", f"cd {folder} && {command}"),
            ]
        )

    def boot(self) -> None:
        self._container = subprocess.Popen(
            [
                *("systemd-nspawn", "--quiet", f"--directory={self.root}"),
                *("--register=no", "--keep-unit", "--boot"),
                *("--console=passive", "--private-network"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=self._enter_cgroups,
            start_new_session=True,
        )
        deadline = time.monotonic() + BOOT_S
        while time.monotonic() < deadline:
            if self._container.poll() is not None:
                error = self._container.stderr.read().decode()
                raise RuntimeError(f"systemd-nspawn ended: {error}")
            if self.leader == 0:
                self.leader = self._find_leader()
            elif self.run("systemctl is-system-running").stdout.strip() in (
                "running",
                "degraded",
            ):
                return
            time.sleep(0.3)
        raise RuntimeError(f"the machine did not boot within {BOOT_S} s")

    def run(
        self, command: str, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Runs a line of shell as root in the machine."""
        return subprocess.run(
            [
                *("nsenter", f"--target={self.leader}", "--all"),
                *("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"),
                *("DEBIAN_FRONTEND=noninteractive", "HOME=/root", "LC_ALL=C.UTF-8"),
                *("sh", "-c", f"cd /root && {command}"),
            ],
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def check(self, command: str, timeout: float = 300) -> str:
        """Runs the line like run() and returns its output. It must succeed."""
        done = self.run(command, timeout)
        if done.returncode != 0:
            raise AssertionError(
                f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def in_its_network(self, command: Sequence[str]) -> list[str]:
        """Returns the words that run a program of this machine in the other
        machine's network."""
        return ["nsenter", f"--target={self.leader}", "--net", *command]

    def files(self) -> set[str]:
        """All paths of its file system."""
        return set(self.check("find / -xdev").splitlines())

    def close(self) -> None:
        if self._container is not None:
            if self.leader:
                self.run("systemctl poweroff --force --force || true")
            try:
                self._container.wait(30)
            except subprocess.TimeoutExpired:
                self._container.kill()
                self._container.wait()
            self._container.stderr.close()
        for folder in self._cgroups:
            _remove_cgroup(folder)
        shutil.rmtree(self.root, ignore_errors=True)

    def _enter_cgroups(self) -> None:
        """Enters a cgroup for the machine, because systemd-nspawn makes the
        machine's groups below its own."""
        for hierarchy in _CGROUPS:
            if (hierarchy / "cgroup.procs").is_file():
                folder = hierarchy / f"fineserve-debian-{os.getppid()}"
                folder.mkdir(exist_ok=True)
                (folder / "cgroup.procs").write_text(str(os.getpid()))

    def _find_leader(self) -> int:
        """Returns the machine's first process, once it has become systemd."""
        for hierarchy in _CGROUPS:
            folder = hierarchy / f"fineserve-debian-{os.getpid()}"
            if folder.is_dir() and folder not in self._cgroups:
                self._cgroups.append(folder)
        children = pathlib.Path(
            f"/proc/{self._container.pid}/task/{self._container.pid}/children"
        )
        for pid in children.read_text().split():
            try:
                name = os.readlink(f"/proc/{pid}/exe")
            except OSError:
                continue
            if name.endswith("/systemd"):
                return int(pid)
        return 0


def _remove_cgroup(folder: pathlib.Path) -> None:
    for inner in sorted(folder.glob("**/"), reverse=True):
        try:
            for pid in (inner / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            inner.rmdir()
        except OSError:
            pass


def _check(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)}: exit {done.returncode}\n"
            f"{done.stdout}{done.stderr}"
        )
