#!/usr/bin/env python3
"""Makes a library load where a version of its symbols is missing.

    weaken_version.py VERSION FILE

Marks the need of VERSION ("GLIBC_2.36") in an ELF file of this machine's kind as
weak (VER_FLG_WEAK): then ld.so does not refuse the file, and looks for those
symbols in the other files of the program (portable_arc4random.c). Fails if the
file does not need that version.
"""

from __future__ import annotations

import struct
import sys

SHT_GNU_VERNEED = 0x6FFFFFFE
VER_FLG_WEAK = 2


def section(image: bytearray, index: int) -> tuple[int, int, int, int]:
    """Its type, offset, and the two fields that link and inform."""
    (headers,) = struct.unpack_from("<Q", image, 40)
    at = headers + index * 64
    kind = struct.unpack_from("<I", image, at + 4)[0]
    (offset,) = struct.unpack_from("<Q", image, at + 24)
    link, info = struct.unpack_from("<II", image, at + 40)
    return kind, offset, link, info


def name_at(image: bytearray, at: int) -> str:
    return image[at : image.index(0, at)].decode()


def weaken(image: bytearray, version: str) -> int:
    """Returns how many needs were marked."""
    marked = 0
    (count,) = struct.unpack_from("<H", image, 60)
    for index in range(count):
        kind, need, link, needs = section(image, index)
        if kind != SHT_GNU_VERNEED:
            continue
        names = section(image, link)[1]
        for _ in range(needs):
            _, parts, _, first, following = struct.unpack_from("<HHIII", image, need)
            aux = need + first
            for _ in range(parts):
                name, next_aux = struct.unpack_from("<II", image, aux + 8)
                if name_at(image, names + name) == version:
                    struct.pack_into("<H", image, aux + 4, VER_FLG_WEAK)
                    marked += 1
                aux += next_aux
            need += following
    return marked


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    version, path = sys.argv[1:]
    with open(path, "rb") as file:
        image = bytearray(file.read())
    if image[:5] != b"\x7fELF\x02" or weaken(image, version) == 0:
        print(f"{path} is no ELF file that needs {version}", file=sys.stderr)
        return 1
    with open(path, "wb") as file:
        file.write(image)
    return 0


if __name__ == "__main__":
    sys.exit(main())
