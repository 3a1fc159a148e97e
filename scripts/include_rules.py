"""Checks includes: each folder may include only the folders in its row.

The rows come from design note 0001; a new dependency changes the note first.
"""

import pathlib
import re
import sys

# folder -> the folders that its files may include, besides their own.
ALLOWED = {
    "kernels": {"kernels/driver"},
    "kernels/driver": set(),
    # Files as a whole, sockets at paths, a hash: owned by no room.
    "daemon/base": {"kernels/driver"},
    "daemon/abi": {"daemon/base", "kernels/driver"},
    # Which daemons run here, and which of them a GPU's name means.
    "daemon/finding": {"daemon/abi", "daemon/base", "kernels/driver"},
    # One request's terms for the scheduler, the wire and the proxy.
    "daemon/verdict": set(),
    "daemon/clock": set(),
    # Answers of all programs to a command line that they cannot carry out.
    "daemon/cli": set(),
    "daemon/log": set(),
    # Names and figures alone: fsctl prints them, the exporter and the proxy
    # export them.
    "daemon/metrics": {"daemon/abi"},
    "daemon/exporter": {
        "daemon/abi",
        "daemon/log",
        "daemon/metrics",
        "daemon/proxy/http",
        "kernels/driver",
    },
    "daemon/slab": {"daemon/abi", "daemon/clock", "kernels/driver"},
    "daemon/backing": {
        "daemon/abi",
        "daemon/clock",
        "daemon/finding",
        "daemon/metrics",
        "daemon/slab",
        "kernels/driver",
    },
    # Host memory for what is evicted.
    "daemon/store": {
        "daemon/abi",
        "daemon/backing",
        "daemon/log",
        "daemon/metrics",
        "kernels",
        "kernels/driver",
    },
    "daemon/config": {
        "daemon/abi",
        "daemon/base",
        "daemon/finding",
        "daemon/plan/model",
    },
    # Changes of the fleet file, as a running process takes them.
    "daemon/apply": {
        "daemon/abi",
        "daemon/base",
        "daemon/clock",
        "daemon/config",
        "kernels/driver",
    },
    "daemon/sched/predict": set(),
    "daemon/sched/policy": {"daemon/sched/predict"},
    "daemon/sched": {
        "daemon/abi",
        "daemon/base",
        "daemon/sched/policy",
        "daemon/sched/predict",
        "daemon/verdict",
        "kernels/driver",
    },
    "daemon/plan/model": {"daemon/sched/predict"},
    "daemon/plan/score": {"daemon/plan/model"},
    "daemon/plan/policy": {"daemon/plan/model", "daemon/plan/score"},
    "daemon/plan/exact": {"daemon/plan/model", "daemon/plan/score"},
    "daemon/plan/testdata": {"daemon/plan/model"},
    "daemon/plan": {
        "daemon/plan/exact",
        "daemon/plan/model",
        "daemon/plan/policy",
        "daemon/plan/score",
    },
    # Several machines: where their daemons are, what is known of them.
    "daemon/cluster": {
        "daemon/base",
        "daemon/config",
        "daemon/finding",
        "daemon/wire",
        "kernels/driver",
    },
    "daemon/wire": {
        "daemon/abi",
        "daemon/base",
        "daemon/verdict",
        "kernels/driver",
    },
    # The KV that the scheduler may count on; pure, so the simulator runs it too.
    "daemon/admission/rooms": {
        "daemon/abi",
        "daemon/sched",
        "daemon/sched/policy",
        "daemon/sched/predict",
        "daemon/slab",
        "kernels/driver",
    },
    # Which idle engine leaves the GPU: pure.
    "daemon/evict": {"daemon/sched/predict"},
    # Which weights of equal replicas become KV: pure.
    "daemon/overload": {"daemon/sched/predict"},
    "daemon/admission": {
        "daemon/admission/rooms",
        "daemon/base",
        "daemon/clock",
        "daemon/config",
        "daemon/evict",
        "daemon/finding",
        "daemon/log",
        "daemon/metrics",
        "daemon/plan/model",
        "daemon/sched",
        "daemon/sched/policy",
        "daemon/sched/predict",
        "daemon/verdict",
        "daemon/wire",
    },
    # The leader: pure but for its files.
    "daemon/lead": {
        "daemon/admission",
        "daemon/base",
        "daemon/clock",
        "daemon/config",
        "daemon/finding",
        "daemon/log",
        "daemon/plan",
        "daemon/plan/model",
        "daemon/plan/score",
        "daemon/wire",
        "kernels/driver",
    },
    # etcd v3 over its JSON gateway.
    "daemon/node/etcd": set(),
    # A machine of a fleet of several.
    "daemon/node": {
        "daemon/abi",
        "daemon/base",
        "daemon/cli",
        "daemon/clock",
        "daemon/cluster",
        "daemon/config",
        "daemon/finding",
        "daemon/lead",
        "daemon/log",
        "daemon/node/etcd",
        "daemon/wire",
    },
    "daemon/proxy/http": set(),
    "daemon/proxy/choice": set(),
    "daemon/proxy/keys": {"daemon/base", "daemon/proxy/http"},
    "daemon/proxy/admission": {
        "daemon/abi",
        "daemon/base",
        "daemon/clock",
        "daemon/config",
        "daemon/log",
        "daemon/proxy/choice",
        "daemon/proxy/http",
        "daemon/verdict",
        "daemon/wire",
        "kernels/driver",
    },
    "daemon/proxy/request": {
        "daemon/config",
        "daemon/proxy/admission",
        "daemon/proxy/choice",
        "daemon/proxy/http",
        "daemon/proxy/keys",
    },
    # The admin port's page shows slab tables and the requests that pass.
    "daemon/proxy/page": {
        "daemon/abi",
        "daemon/apply",
        "daemon/base",
        "daemon/clock",
        "daemon/config",
        "daemon/finding",
        "daemon/proxy/admission",
        "daemon/proxy/http",
        "daemon/proxy/record",
        "daemon/wire",
        "kernels/driver",
    },
    # The end of each request.
    "daemon/proxy/record": {
        "daemon/clock",
        "daemon/log",
        "daemon/proxy/admission",
        "daemon/proxy/http",
        "daemon/proxy/request",
        "kernels/driver",
    },
    "daemon/proxy/tls": {"daemon/proxy/http"},
    "daemon/proxy/trace": {
        "daemon/clock",
        "daemon/config",
        "daemon/log",
        "daemon/proxy/http",
        "daemon/proxy/record",
        "kernels/driver",
    },
    "daemon/proxy/exchange": {
        "daemon/clock",
        "daemon/config",
        "daemon/log",
        "daemon/metrics",
        "daemon/proxy/admission",
        "daemon/proxy/http",
        "daemon/proxy/keys",
        "daemon/proxy/page",
        "daemon/proxy/record",
        "daemon/proxy/request",
        "daemon/proxy/tls",
        "daemon/proxy/trace",
    },
    "daemon/proxy": {
        "daemon/abi",
        "daemon/apply",
        "daemon/base",
        "daemon/cli",
        "daemon/clock",
        "daemon/cluster",
        "daemon/config",
        "daemon/finding",
        "daemon/holder",
        "daemon/log",
        "daemon/proxy/admission",
        "daemon/proxy/exchange",
        "daemon/proxy/http",
        "daemon/proxy/keys",
        "daemon/proxy/page",
        "daemon/proxy/record",
        "daemon/proxy/request",
        "daemon/proxy/tls",
        "daemon/proxy/trace",
        "daemon/wire",
        "kernels/driver",
    },
    "daemon/holder": {"daemon/log", "kernels/driver"},
    "daemon/server": {
        "daemon/abi",
        "daemon/admission",
        "daemon/admission/rooms",
        "daemon/apply",
        "daemon/backing",
        "daemon/base",
        "daemon/cli",
        "daemon/clock",
        "daemon/cluster",
        "daemon/config",
        "daemon/evict",
        "daemon/exporter",
        "daemon/finding",
        "daemon/holder",
        "daemon/lead",
        "daemon/log",
        "daemon/metrics",
        "daemon/slab",
        "daemon/store",
        "daemon/wire",
        "kernels/driver",
    },
    # Contains only the public header.
    "shim": set(),
    "shim/hooks": {
        "daemon/abi",
        "kernels/driver",
        "shim",
        "shim/classify",
        "shim/group",
        "shim/host",
        "shim/link",
        "shim/redirect",
        "shim/view",
        "shim/weights",
    },
    "shim/redirect": {
        "daemon/abi",
        "kernels/driver",
        "shim",
        "shim/classify",
        "shim/group",
        "shim/host",
        "shim/link",
        "shim/map",
        "shim/view",
        "shim/weights",
    },
    "shim/group": {
        "daemon/abi",
        "shim",
        "shim/classify",
        "shim/host",
        "shim/link",
        "shim/view",
    },
    "shim/view": {
        "daemon/abi",
        "kernels/driver",
        "shim",
        "shim/host",
        "shim/link",
        "shim/map",
    },
    "shim/weights": {
        "daemon/abi",
        "kernels/driver",
        "shim/host",
        "shim/link",
        "shim/map",
    },
    "shim/map": {"daemon/abi", "kernels/driver", "shim/host", "shim/link"},
    # The link fills the tables of rules and sizes that classify reads.
    "shim/link": {"daemon/abi", "shim/classify", "shim/host"},
    "shim/classify": {"daemon/abi", "shim/host"},
    "shim/host": {"daemon/abi", "kernels/driver"},
    "shim/testdata": {
        "bench/micro",
        "daemon/abi",
        "kernels/driver",
        "shim",
        "shim/host",
        "shim/link",
    },
    "tools/emucuda": set(),
    "tools/emucuda/machine": {"kernels/driver"},
    "tools/emucuda/call": {"kernels/driver", "tools/emucuda/machine"},
    "tools/emucuda/memory": {"kernels/driver", "tools/emucuda/machine"},
    "tools/emucuda/linger": {"tools/emucuda/machine", "tools/emucuda/memory"},
    "tools/emucuda/stream": {"kernels/driver", "tools/emucuda/machine"},
    "tools/emucuda/heap": {
        "kernels/driver",
        "tools/emucuda/machine",
        "tools/emucuda/memory",
        "tools/emucuda/stream",
    },
    # Our kernels' host twins run on the emulated device.
    "tools/emucuda/kernel": {
        "kernels",
        "kernels/driver",
        "tools/emucuda/machine",
        "tools/emucuda/memory",
    },
    "tools/emucuda/api": {
        "kernels/driver",
        "tools/emucuda",
        "tools/emucuda/call",
        "tools/emucuda/heap",
        "tools/emucuda/kernel",
        "tools/emucuda/linger",
        "tools/emucuda/machine",
        "tools/emucuda/memory",
        "tools/emucuda/stream",
    },
    "tools/emucuda/nvml": {"kernels/driver", "tools/emucuda/machine"},
    "tools/emucuda/cudart": {"kernels/driver"},
    # A library on the runtime, as NVIDIA's: its kernels are host functions.
    "tools/emucuda/nccl": {
        "kernels/driver",
        "tools/emucuda",
        "tools/emucuda/cudart",
        "tools/emucuda/machine",
    },
    "tools/fsctl": {
        "daemon/abi",
        "daemon/cli",
        "tools/fsctl/admission",
        "tools/fsctl/apply",
        "tools/fsctl/doctor",
        "tools/fsctl/explain",
        "tools/fsctl/follow",
        "tools/fsctl/geometry",
        "tools/fsctl/keys",
        "tools/fsctl/limit",
        "tools/fsctl/look",
        "tools/fsctl/metrics",
        "tools/fsctl/move",
        "tools/fsctl/nodes",
        "tools/fsctl/plan",
        "tools/fsctl/profile",
        "tools/fsctl/run",
        "tools/fsctl/stack",
        "tools/fsctl/status",
        "tools/fsctl/support",
        "tools/fsctl/terminal",
        "tools/fsctl/upgrade",
        "tools/up",
    },
    "tools/fsctl/terminal": {"daemon/abi", "daemon/cli"},
    "tools/fsctl/process": {
        "daemon/abi",
        "daemon/base",
        "daemon/clock",
        "kernels/driver",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/pool": {
        "daemon/abi",
        "daemon/finding",
        "daemon/slab",
        "kernels/driver",
        "tools/fsctl/process",
        "tools/fsctl/terminal",
    },
    # Stacks of another process's threads, by libunwind.
    "tools/fsctl/stack": {
        "daemon/abi",
        "tools/fsctl/pool",
        "tools/fsctl/process",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/move": {
        "daemon/abi",
        "kernels/driver",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/limit": {
        "daemon/abi",
        "kernels/driver",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/look": {
        "daemon/abi",
        "daemon/finding",
        "daemon/wire",
        "tools/fsctl/ask",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/metrics": {"daemon/metrics", "tools/fsctl/terminal"},
    "tools/fsctl/keys": {"daemon/wire", "tools/fsctl/terminal"},
    "tools/fsctl/ask": {
        "daemon/cluster",
        "daemon/finding",
        "daemon/wire",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/nodes": {
        "daemon/abi",
        "daemon/clock",
        "daemon/cluster",
        "daemon/finding",
        "daemon/wire",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/admission": {
        "daemon/abi",
        "daemon/finding",
        "daemon/wire",
        "tools/fsctl/ask",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/follow": {
        "tools/fsctl/apply",
        "tools/fsctl/terminal",
        "tools/openai",
    },
    "tools/fsctl/apply": {
        "daemon/abi",
        "daemon/apply",
        "daemon/clock",
        "daemon/config",
        "daemon/finding",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/status": {
        "daemon/base",
        "daemon/abi",
        "daemon/apply",
        "daemon/cluster",
        "daemon/config",
        "daemon/finding",
        "daemon/wire",
        "kernels/driver",
        "tools/fsctl/apply",
        "tools/fsctl/ask",
        "tools/fsctl/pool",
        "tools/fsctl/process",
        "tools/fsctl/stack",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/explain": {
        "daemon/abi",
        "tools/fsctl/pool",
        "tools/fsctl/process",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/doctor": {
        "daemon/abi",
        "daemon/cluster",
        "daemon/finding",
        "kernels/driver",
        "tools/fsctl/pool",
        "tools/fsctl/process",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/support": {
        "daemon/abi",
        "daemon/config",
        "daemon/finding",
        "kernels/driver",
        "tools/fsctl/apply",
        "tools/fsctl/follow",
        "tools/fsctl/pool",
        "tools/fsctl/process",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/geometry": {
        "daemon/abi",
        "daemon/slab",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/plan": {
        "daemon/abi",
        "daemon/base",
        "daemon/config",
        "daemon/plan",
        "daemon/plan/model",
        "daemon/wire",
        "kernels/driver",
        "tools/fsctl/ask",
        "tools/fsctl/pool",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/run": {
        "daemon/abi",
        "daemon/clock",
        "daemon/finding",
        "kernels/driver",
        "tools/fsctl/pool",
        "tools/fsctl/process",
        "tools/fsctl/terminal",
    },
    # Part of fsctl's binary, which keeps running; commands that end are in
    # tools/fsctl.
    "tools/up": {
        "daemon/abi",
        "daemon/apply",
        "daemon/base",
        "daemon/cluster",
        "daemon/config",
        "daemon/finding",
        "daemon/wire",
        "kernels/driver",
        "tools/fsctl/pool",
        "tools/fsctl/process",
        "tools/fsctl/run",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/upgrade": {
        "daemon/abi",
        "daemon/clock",
        "kernels/driver",
        "tools/fsctl/doctor",
        "tools/fsctl/pool",
        "tools/fsctl/process",
        "tools/fsctl/terminal",
    },
    "tools/fsctl/profile": {
        "daemon/base",
        "daemon/config",
        "daemon/sched/predict",
        "kernels/driver",
        "tools/fsctl/terminal",
        "tools/openai",
    },
    # A client of engines, shared by fsctl and the load generator.
    "tools/openai": set(),
    "tools/sim": {
        "bench/workload",
        "daemon/cli",
        "daemon/config",
        "daemon/log",
        "tools/sim/bound",
        "tools/sim/core",
        "tools/sim/fleet",
        "tools/sim/report",
    },
    "tools/sim/core": {"daemon/sched/predict"},
    "tools/sim/engine": {"daemon/sched/predict", "tools/sim/core"},
    # Runs what ships: the pool's machine, the scheduler, the code between them.
    "tools/sim/gpu": {
        "daemon/abi",
        "daemon/admission",
        "daemon/admission/rooms",
        "daemon/evict",
        "daemon/sched",
        "daemon/sched/policy",
        "daemon/sched/predict",
        "daemon/slab",
        "daemon/wire",
        "kernels/driver",
        "tools/sim/core",
        "tools/sim/engine",
    },
    # The leader and the hand that ship.
    "tools/sim/lead": {
        "daemon/admission",
        "daemon/clock",
        "daemon/config",
        "daemon/lead",
        "daemon/proxy/admission",
        "daemon/wire",
        "tools/sim/core",
        "tools/sim/gpu",
        "tools/up",
    },
    "tools/sim/fleet": {
        "bench/workload",
        "daemon/config",
        "daemon/lead",
        "daemon/proxy/admission",
        "daemon/proxy/choice",
        "daemon/proxy/request",
        "daemon/sched",
        "daemon/sched/predict",
        "daemon/slab",
        "daemon/wire",
        "tools/sim/core",
        "tools/sim/engine",
        "tools/sim/gpu",
        "tools/sim/lead",
    },
    "tools/sim/bound": {
        "bench/workload",
        "tools/sim/core",
        "tools/sim/engine",
        "tools/sim/fleet",
        "tools/sim/gpu",
        "tools/sim/lead",
    },
    # Equal replicas of one model and a burst, with the policy that ships.
    "tools/sim/overload": {
        "bench/workload",
        "daemon/overload",
        "daemon/sched/predict",
    },
    "tools/sim/report": {
        "bench/fragmentation",  # its plots
        "bench/workload",
        "tools/sim/fleet",
        "tools/sim/gpu",
        "tools/sim/lead",
    },
    # Shared by the load generator and the simulator.
    "bench/workload": set(),
    # Engines know only FineServe's public C header; the driver's prototypes
    # replace cuda.h for them.
    "tests/engines": {"kernels/driver"},
    "tests/engines/group": {"kernels/driver", "tests/engines"},
    "tests/engines/tinyserve": {
        "kernels/driver",
        "tests/engines",
        "tests/engines/tinyserve/engine",
        "tests/engines/tinyserve/http",
        "tests/engines/tinyserve/kv",
    },
    "tests/engines/tinyserve/http": {
        "tests/engines/tinyserve/engine",
        "tests/engines/tinyserve/model",
    },
    "tests/engines/tinyserve/engine": {
        "tests/engines/tinyserve/kv",
        "tests/engines/tinyserve/model",
    },
    "tests/engines/tinyserve/kv": {
        "kernels/driver",
        "tests/engines",
        "tests/engines/tinyserve/model",
    },
    "tests/engines/tinyserve/model": set(),
}
# The headers of kernels/driver that the contract may use: they do not depend on
# a driver.
ABI_MAY_USE = {"kernels/driver/descriptor.h", "kernels/driver/rounding.h"}
# Programs in tests/ may include these headers, which are installed for programs.
PUBLIC = {"shim/fineserve_kv.h"}
# *_test.cc and *_fixture.h may use these folders besides their folder's row.
FIXTURES = {"daemon/plan/testdata", "shim/testdata", "tests/process"}
# Generated headers. Each belongs to the folder in its path.
GENERATED = {
    "daemon/proxy/page/embedded_page.h",
    "daemon/wire/admission_generated.h",
}
# Folders whose files may include anything: they test and measure the rest.
FREE = ("tests/", "bench/", "scripts/precompiled.h")

INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def folder_of(path: str) -> str:
    """Returns the longest known folder that holds path, else its parent."""
    known = [f for f in ALLOWED if path.startswith(f + "/")]
    return max(known, key=len) if known else str(pathlib.PurePath(path).parent)


def violations(path: str) -> list[str]:
    folder = folder_of(path)
    if folder not in ALLOWED:
        if path.startswith(FREE):
            return []
        return [f"{path}: folder {folder} has no row in include_rules.py"]
    found = []
    for header in INCLUDE.findall(pathlib.Path(path).read_text()):
        if not pathlib.Path(header).is_file():
            if header in GENERATED:
                continue
            if not header.startswith("absl/"):
                found.append(f"{path}: \"{header}\" is not root-relative")
            continue
        used = folder_of(header)
        if header in PUBLIC and path.startswith("tests/"):
            continue
        if used in FIXTURES and path.endswith(("_test.cc", "_fixture.h")):
            continue
        if used != folder and used not in ALLOWED[folder]:
            found.append(f"{path}: {folder} may not include {header}")
        if folder == "daemon/abi" and used == "kernels/driver":
            if header not in ABI_MAY_USE:
                found.append(f"{path}: abi may not use {header}")
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Returns the nodes of one cycle in order, with the first one again last."""
    seen: set[str] = set()

    def search(node: str, way: list[str]) -> list[str]:
        if node in way:
            return way[way.index(node) :] + [node]
        if node in seen:
            return []
        seen.add(node)
        for used in sorted(graph.get(node, set()) - {node}):
            if found := search(used, way + [node]):
                return found
        return []

    return next((c for n in sorted(graph) if (c := search(n, []))), [])


def unit_of(path: str) -> str:
    """Returns a header's and its source's common node: cycles pass through both."""
    return path.removesuffix(".h").removesuffix(".cc")


def circles(paths: list[str]) -> list[str]:
    units: dict[str, set[str]] = {}
    for path in paths:
        used = INCLUDE.findall(pathlib.Path(path).read_text())
        units.setdefault(unit_of(path), set()).update(map(unit_of, used))
    found = []
    for what, graph in (("rows", ALLOWED), ("includes", units)):
        if way := circle(graph):
            found.append(f"cycle of {what}: {' -> '.join(way)}")
    return found


def main() -> int:
    found = [v for path in sys.argv[1:] for v in violations(path)]
    found += circles(sys.argv[1:])
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
