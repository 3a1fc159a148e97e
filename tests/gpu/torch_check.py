"""PyTorch, as it was installed, under the shim: gpu_check's last check.

Starts a fineserved with a small pool, runs stock PyTorch programs with the shim
preloaded, and looks from outside, by `fsctl slabs`, at what they lease. Writes
GoogleTest's JSON, as gpu_check's other programs do. Needs Python 3.8 and no
package but torch; without that every case is skipped with the reason.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools/lab/stage"))

import stage  # noqa: E402

MIB = 1 << 20
KV_BYTES = 128 * MIB
SLAB_BYTES = 16 * MIB
POOL_BYTES = 512 * MIB

# The beginning that all programs share. Nothing else allocates KV_BYTES bytes.
PRELUDE = f"""
import sys, torch
KV_BYTES = {KV_BYTES}
assert torch.cuda.is_available(), "torch sees no GPU"
def round_trip(n):
    sent = torch.arange(n, dtype=torch.int32)
    got = sent.to("cuda").cpu()
    assert torch.equal(sent, got), "bytes changed on their way"
def ready():
    print("ready", flush=True)
    sys.stdin.readline()
"""

PROGRAMS = {
    "ImportsAndCopies": "round_trip(1 << 20)",
    "ZerosAreZero": (
        "t = torch.zeros(3 << 20, device='cuda').cpu()\n"
        "assert bool((t == 0).all()), 'torch.zeros is not zero'"
    ),
    "CachingAllocatorGivesBack": (
        "for i in range(20):\n"
        "    t = torch.empty(32 << 20, dtype=torch.uint8, device='cuda')\n"
        "    del t\n"
        "torch.cuda.empty_cache()\n"
        "assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()"
    ),
}

KV_PROGRAM = """
kv = torch.empty(KV_BYTES, dtype=torch.uint8, device="cuda")
pattern = (torch.arange(KV_BYTES, dtype=torch.int64) % 251).to(torch.uint8)
kv.copy_(pattern)
ready()
assert torch.equal(kv.cpu(), pattern), "KV changed"
"""

# Holds weights and, on a real GPU, a captured matrix product that is replayed
# after each return. The emulated device runs none of PyTorch's kernels.
EVICTED_PROGRAM = """
real = {real}
pattern = (torch.arange({piece}, dtype=torch.int64) % 251).to(torch.uint8)
weights = [torch.empty({piece}, dtype=torch.uint8, device="cuda") for _ in range({pieces})]
for i, weight in enumerate(weights):
    weight.copy_(pattern.roll(i))
if real:
    a, b = (torch.randn(4096, 4096, device="cuda").bfloat16() for _ in "ab")
    product = torch.mm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mm(a, b, out=product)
    graph.replay()
    expected = product.cpu()
torch.cuda.synchronize()
for _ in range({rounds}):
    ready()
    if real:
        product.zero_()
        graph.replay()
        assert torch.equal(product.cpu(), expected), "the graph's product changed"
    for i, weight in enumerate(weights):
        assert torch.equal(weight.cpu(), pattern.roll(i)), f"weights {{i}} changed"
"""


class NotShown(Exception):
    """A case that failed; its text says what was found."""


class Site(stage.Machine):
    """A fineserved of this run and the programs on it."""

    def __init__(self, prefix, emulated):
        super().__init__(prefix / "bin")
        libraries = prefix / "lib"
        shim = libraries / "fineserve" / "libfineserve_shim.so"
        if not shim.exists():
            shim = libraries / "libfineserve_shim.so"
        self.environment["LD_PRELOAD"] = ""
        self.engine = {"LD_PRELOAD": str(shim), "FINESERVE_KV_SIZES": str(KV_BYTES)}
        if emulated:
            # torch's own run path leads to NVIDIA's runtime, so ours is
            # preloaded.
            emucuda = libraries / "emucuda"
            self.engine["LD_PRELOAD"] += f":{emucuda / 'libcudart.so.13'}"
            self.engine["LD_LIBRARY_PATH"] = str(emucuda)
        self.gpu = "emulated" if emulated else "0"

    def __enter__(self):
        try:
            self.start_daemon(
                *("--gpu", self.gpu, "--pool", POOL_BYTES, "--slab", SLAB_BYTES)
            )
        except AssertionError as error:
            self.close()
            raise NotShown(str(error)) from None
        return self

    def __exit__(self, *_):
        self.close()

    def slabs(self, state):
        return self.report("slabs")["states"][state]["slabs"]

    def move(self, *words):
        done = self.fsctl(*words)
        if done.returncode != 0:
            raise NotShown(f"fsctl {' '.join(words)}: {done.stderr.strip()}")

    def start_torch(self, program, settings=None):
        return subprocess.Popen(
            [sys.executable, "-c", PRELUDE + program],
            env={**os.environ, **self.environment, **self.engine, **(settings or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )

    def run(self, program, settings=None):
        finish(self.start_torch(program, settings))


def finish(process):
    """Lets a program go on to its end; its exit status must be 0."""
    _, errors = process.communicate("go\n", timeout=stage.PATIENCE_S)
    if process.returncode != 0:
        raise NotShown(f"ended with {process.returncode}: {errors[-1500:]}")


def await_ready(process):
    if process.stdout.readline() != "ready\n":
        finish(process)
        raise NotShown("ended before it was ready")


def kv_lands_in_slabs(site):
    process = site.start_torch(KV_PROGRAM)
    await_ready(process)
    leased = site.slabs("full")
    finish(process)
    if leased != KV_BYTES // SLAB_BYTES:
        raise NotShown(f"{leased} slabs leased instead of {KV_BYTES // SLAB_BYTES}")


def other_memory_stays_out(site):
    process = site.start_torch("t = torch.empty(96 << 20, dtype=torch.uint8, device='cuda'); ready()")
    await_ready(process)
    leased = site.slabs("full")
    finish(process)
    if leased != 0:
        raise NotShown(f"{leased} slabs leased to a program without KV")


def two_processes_trade_slabs(site):
    for _ in range(3):
        pair = [site.start_torch(KV_PROGRAM), site.start_torch(KV_PROGRAM)]
        for process in pair:
            await_ready(process)
        for process in pair:
            finish(process)
    require_free(site)


def killed_program_gives_slabs_back(site):
    process = site.start_torch(KV_PROGRAM)
    await_ready(process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    require_free(site)


def require_free(site):
    free = POOL_BYTES // SLAB_BYTES
    if not stage.eventually(lambda: site.slabs("free") == free):
        raise NotShown(f"only {site.slabs('free')} of {free} slabs came back")


def expandable_segments(site):
    site.run(
        "round_trip(8 << 20)",
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )


def seconds(call, *arguments):
    """How long a call takes."""
    began = time.monotonic()
    call(*arguments)
    return time.monotonic() - began


def evicted_program_comes_back(site):
    real = site.gpu != "emulated"
    piece, pieces, rounds = (256 * MIB, 32, 4) if real else (16 * MIB, 4, 2)
    program = EVICTED_PROGRAM.format(real=real, piece=piece, pieces=pieces, rounds=rounds)
    process = site.start_torch(program, {"FINESERVE_EVICT": "auto", "FINESERVE_ENGINE": "torch"})
    figures = {"weights_MiB": piece * pieces // MIB}
    for i in range(rounds):
        await_ready(process)
        figures[f"evict_{i}_s"] = seconds(site.move, "evict", "torch")
        if real:
            figures["used_while_it_is_out_MiB"] = used_mib()
        figures[f"activate_{i}_s"] = seconds(site.move, "activate", "torch")
        if i + 1 < rounds:
            process.stdin.write("go\n")
            process.stdin.flush()
    finish(process)
    return figures


def used_mib():
    """Memory in use on GPU 0, in MiB."""
    said = subprocess.run(
        ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    )
    return int(said.stdout)


def cases(site):
    for name, program in PROGRAMS.items():
        yield name, lambda p=program: site.run(p)
    yield "ExpandableSegments", lambda: expandable_segments(site)
    yield "KvLandsInSlabs", lambda: kv_lands_in_slabs(site)
    yield "OtherMemoryStaysOut", lambda: other_memory_stays_out(site)
    yield "TwoProcessesTradeSlabs", lambda: two_processes_trade_slabs(site)
    yield "KilledProgramGivesSlabsBack", lambda: killed_program_gives_slabs_back(site)
    yield "EvictedProgramComesBack", lambda: evicted_program_comes_back(site)


def result(name, failure="", skip="", figures=None):
    entry = {
        **{name: f"{value:.4g}" for name, value in (figures or {}).items()},
        "name": name,
        "classname": "Torch",
        "status": "RUN",
        "result": "SKIPPED" if skip else "COMPLETED",
    }
    if skip:
        entry["skip_reason"] = skip
    if failure:
        entry["failures"] = [{"failure": failure, "type": ""}]
    return entry


def perform(name, case):
    try:
        return result(name, figures=case())
    except (NotShown, subprocess.SubprocessError, OSError) as error:
        return result(name, failure=str(error))


def all_results(prefix, emulated):
    """Yields each case's result as it ends."""
    found = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        universal_newlines=True,
    )
    if found.returncode != 0:
        yield result("Imports", skip=f"{sys.executable} has no torch")
        return
    try:
        with Site(prefix, emulated) as site:
            version = {"torch_version": found.stdout.strip()}
            for case in cases(site):
                yield {**perform(*case), **version}
                version = {}
    except NotShown as error:
        yield result("DaemonServes", failure=str(error))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=["real", "emulated"], required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    results = []
    for one in all_results(options.prefix, options.device == "emulated"):
        results.append(one)
        # A killed run leaves the results of the cases that had ended.
        report = {"testsuites": [{"name": "Torch", "testsuite": results}]}
        options.output.write_text(json.dumps(report))
    return 1 if any("failures" in r for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
