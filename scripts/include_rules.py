"""Checks includes: a folder may include those of its own floor and of lower ones,
and a header includes what it names of the standard library.

Design note 0001 says why the floors are in this order. A header that relies on
its includer compiles in a unity build and breaks a build of single files.
"""

import pathlib
import re
import sys

# From the ground up.
FLOORS = (
    "kernels/driver",
    "kernels",
    "daemon/base",
    "daemon/contract",
    "daemon/pool",
    "daemon/scheduling",
    "daemon/fleet",
    "daemon/scheduling/lead",
    "daemon/fineserved",
    "daemon/node",
    "daemon/proxy",
    "tools/openai",
    "tools/fsctl",
    "tools/up",
    # Code that runs in strangers' processes, in the order in which it is
    # called.
    "shim",
    "shim/host",
    "shim/classify",
    "shim/link",
    "shim/map",
    "shim/view",
    "shim/ranks",
    "shim/gate",
    "shim/weights",
    "shim/redirect",
    "shim/eviction",
    "shim/hooks",
    # The laboratory: shipped code does not include it.
    "tools/lab/process",
    "tools/lab/stage",
    "tools/lab/svg",
    "tools/lab/workload",
    "tools/lab/loadgen",
    "tools/lab/sim",
    "tools/lab/torch",
    "tools/lab/device",
    "tools/lab/engines",
    "shim/testdata",
    "tests",
    "bench",
)
ABI = {"kernels/driver", "daemon/contract/abi"}
DECIDES = ABI | {"daemon/base", "daemon/contract/verdict", "daemon/scheduling"}
# Floors that may include less than everything below them: the shim includes
# only libc and the contract, the emulated device and the engines know no
# daemon, and code that decides has no sockets.
ONLY = {
    "shim": ABI | {"shim"},
    "tools/lab/process": {"kernels/driver"},
    "tools/lab/device": {"kernels", "kernels/driver"},
    "tools/lab/engines": {"kernels/driver", "shim/fineserve_kv.h"},
    "daemon/pool": ABI | {"daemon/base/clock", "daemon/base/errno_status.h"},
    "daemon/scheduling": DECIDES,
    "daemon/scheduling/global": {"daemon/scheduling"},
    "daemon/scheduling/lead": DECIDES | {"daemon/contract", "daemon/fleet"},
    "daemon/fineserved/admission/rooms": DECIDES | {"daemon/pool"},
    "daemon/proxy/replica_choice": DECIDES | {"daemon/contract/wire"},
}
# The headers of kernels/driver that the contract may use: they do not depend on
# a driver.
ABI_MAY_USE = {"kernels/driver/descriptor.h", "kernels/driver/rounding.h"}
# Tests and fixtures may also use these folders.
FIXTURES = ("daemon/scheduling/global/testdata", "shim/testdata", "tools/lab/process")
FREE = ("scripts/precompiled.h",)
# Generated headers. Each belongs to the folder in its path.
GENERATED = {
    "daemon/proxy/page/embedded_page.h",
    "daemon/contract/wire/admission_generated.h",
}

INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)

# The names of the standard library, by header.
STANDARD = {
    "algorithm": r"std::(min|max|sort|clamp|any_of|all_of|none_of|find_if)\b",
    "array": r"std::array\b",
    "atomic": r"std::atomic\b",
    "chrono": r"std::chrono\b",
    "cstddef": r"(std::)?(size_t|ptrdiff_t)\b",
    "cstdint": r"(std::)?u?int(8|16|32|64|ptr)_t\b",
    "deque": r"std::deque\b",
    "functional": r"std::function\b",
    "limits": r"std::numeric_limits\b",
    "map": r"std::(multi)?map\b",
    "memory": r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b",
    "optional": r"std::(optional|nullopt)\b",
    "set": r"std::(multi)?set\b",
    "span": r"std::span\b",
    "string": r"std::(string|to_string)\b",
    "string_view": r"std::string_view\b",
    "thread": r"std::j?thread\b",
    "tuple": r"std::(tuple|tie)\b",
    "utility": r"std::(exchange|forward|move|pair|swap)\b",
    "variant": r"std::(variant|visit|get_if|holds_alternative)\b",
    "vector": r"std::vector\b",
}
# Headers that have the names of another one, too.
HOLDERS = {"deque", "map", "memory", "optional", "set", "span", "string", "vector"}
SAME = {
    "cstddef": HOLDERS | {"stddef.h", "string_view", "array", "cstring"},
    "cstdint": {"stdint.h"},
    "utility": HOLDERS,
}
NOT_CODE = re.compile(r'//.*|/\*[\s\S]*?\*/|"(?:\\.|[^"\\\n])*"|^#(?:.*\\\n)*.*', re.M)


def is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def nearest(path: str, folders) -> str | None:
    return max((f for f in folders if is_in(path, f)), key=len, default=None)


def violations(path: str, headers: list[str]) -> list[str]:
    if path in FREE:
        return []
    floor = nearest(path, FLOORS)
    if not floor:
        return [f"{path}: its folder has no floor in include_rules.py"]
    is_test = path.endswith(("_test.cc", "_fixture.h")) or nearest(path, FIXTURES)
    only = None if is_test else ONLY.get(nearest(path, ONLY))
    found = []
    for header in headers:
        if not pathlib.Path(header).is_file() and header not in GENERATED:
            if not header.startswith("absl/"):
                found.append(f'{path}: "{header}" is not root-relative')
            continue
        if is_test and nearest(header, FIXTURES):
            continue
        used = nearest(header, FLOORS)
        is_above = used and FLOORS.index(used) > FLOORS.index(floor)
        is_hidden = only is not None and used != floor and not nearest(header, only)
        if is_above or is_hidden:
            found.append(f"{path}: {floor} may not include {header}")
        if is_in(path, "daemon/contract/abi") and used == "kernels/driver":
            if header not in ABI_MAY_USE:
                found.append(f"{path}: abi may not use {header}")
    return found


def unincluded(path: str, text: str) -> list[str]:
    if not path.endswith(".h"):
        return []
    has = set(re.findall(r"^#include <([^>]+)>", text, re.M))
    code = NOT_CODE.sub("", text)
    return [
        f"{path}: names {name.group()} and does not include <{header}>"
        for header, names in STANDARD.items()
        if not has & ({header} | SAME.get(header, set()))
        and (name := re.search(rf"(?<![\w:]){names}", code))
    ]


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
    return path.removesuffix(".h").removesuffix(".cc")


def folder_of(path: str) -> str:
    return str(pathlib.PurePath(path).parent)


def circles(includes: dict[str, list[str]]) -> list[str]:
    found = []
    for node_of in (unit_of, folder_of):
        graph: dict[str, set[str]] = {}
        for path, headers in includes.items():
            if node_of is folder_of and path.endswith(("_test.cc", "_fixture.h")):
                continue
            graph.setdefault(node_of(path), set()).update(map(node_of, headers))
        if way := circle(graph):
            found.append(f"cycle: {' -> '.join(way)}")
    return found


def main() -> int:
    texts = {p: pathlib.Path(p).read_text() for p in sys.argv[1:]}
    includes = {p: INCLUDE.findall(text) for p, text in texts.items()}
    found = [v for path, headers in includes.items() for v in violations(path, headers)]
    found += [v for path, text in texts.items() for v in unincluded(path, text)]
    found += circles(includes)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
