"""Measures how much longer stock PyTorch's allocations take under the shim.

Two processes on the emulated device, one plain (the baseline), one under the
shim with a size declared as KV, take turns, so that other load of the machine
affects both alike. There are three loops: `cached` (the caching allocator
answers) and twice `driver` (every allocation reaches the driver: 1 MiB is below
the size from which the shim classifies, 32 MiB is classified, but not as KV).
No daemon runs: the bench `mapping` measures allocations of KV.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "report"))

import bench_report  # noqa: E402

BUILD = ROOT / "build/release"
TARGET = 1.05  # with the shim / without

WORKER = """
import sys, time, torch
def cached(n):
    for _ in range(n):
        torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
def driver(n, size):
    for _ in range(n):
        torch.empty(size, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()
LOOPS = {
    "cached 1 MiB": (lambda: cached(2000), 2000),
    "driver 1 MiB": (lambda: driver(200, 1 << 20), 200),
    "driver 32 MiB": (lambda: driver(200, 32 << 20), 200),
}
for line in sys.stdin:
    loop, count = LOOPS[line.strip()]
    start = time.perf_counter()
    loop()
    print((time.perf_counter() - start) * 1e9 / count, flush=True)
"""
LOOPS = ("cached 1 MiB", "driver 1 MiB", "driver 32 MiB")


def worker(shim: bool, folder: str) -> subprocess.Popen[str]:
    emulated = BUILD / "lib/emucuda"
    preload = [BUILD / "lib/libfineserve_shim.so"] if shim else []
    preload.append(emulated / "libcudart.so.13")
    return subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {
            "EMUCUDA_DIR": folder,
            "EMUCUDA_MEMORY": "1GiB",
            "FINESERVE_RUNTIME_DIR": f"{folder}/run",
            "FINESERVE_KV_SIZES": "48MiB",
            "LD_PRELOAD": ":".join(map(str, preload)),
            "LD_LIBRARY_PATH": str(emulated),
        },
    )


def ask(process: subprocess.Popen[str], loop: str) -> float:
    process.stdin.write(loop + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(rounds: int, folder: str) -> dict[str, list[tuple[float, float]]]:
    """Returns (plain, shim) ns per allocation, by loop and round. The order of
    the two alternates from round to round. The first round is a warm-up and
    does not count."""
    workers = [worker(False, folder), worker(True, folder)]
    pairs: dict[str, list[tuple[float, float]]] = {loop: [] for loop in LOOPS}
    for i in range(rounds + 1):
        for loop in LOOPS:
            order = (0, 1) if i % 2 == 0 else (1, 0)
            ns = {k: ask(workers[k], loop) for k in order}
            if i > 0:
                pairs[loop].append((ns[0], ns[1]))
    for process in workers:
        process.stdin.close()
        process.wait()
    return pairs


def main() -> int:
    parser = bench_report.parser("torch", __doc__)
    parser.add_argument(
        "--rounds",
        type=int,
        default=41,
        help="rounds of all loops (%(default)s)",
    )
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="fineserve-bench-", dir="/dev/shm")
    try:
        pairs = measure(args.rounds, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = bench_report.Report()
    for loop, values in pairs.items():
        plain = statistics.median(v[0] for v in values)
        shim = statistics.median(v[1] for v in values)
        report.figures[loop] = {"plain_ns": plain, "shim_ns": shim}
        print(f"  {loop}: {plain:.0f} ns per allocation, {shim:.0f} under the shim")
        ratio = statistics.median(v[1] / v[0] for v in values)
        report.at_most(loop, ratio, TARGET)
    report.write(args.json, "torch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
