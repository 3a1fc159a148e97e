"""Compares the keys that our TOML files may have with their manual pages.

Every key that daemon/fleet/config reads must be on the file's page, and every key
that has an entry there must be read. Prints one line for each mistake.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys

# Each page's sources that read its keys, in daemon/fleet/config.
PAGES = {
    "fineserve.toml.5.scd": ("config.cc",),
    "fineserve-fleet.5.scd": (
        "fleet_file.cc",
        "fleet_sections.cc",
    ),
}
# Matches {"key", Setter(…)}, the form in which each of these sources reads a
# key.
READ = re.compile(r'\{"([a-z_]+)",\s*[A-Z]\w*\(')
ENTRY = re.compile(r"^\*[a-z_]+\*(?:, \*[a-z_]+\*)*(?= =|$)", re.M)
KEY = re.compile(r"\*([a-z_]+)\*")


def mistakes_of(page: pathlib.Path, sources: list[pathlib.Path]) -> list[str]:
    read: set[str] = set()
    for source in sources:
        read |= set(READ.findall(source.read_text()))
    # A separate section describes the files that another program writes.
    text = page.read_text().split("\n# PROFILE FILES\n")[0]
    entries = {key for entry in ENTRY.findall(text) for key in KEY.findall(entry)}
    # A table's own keys are in its entry, like { name = "a" }.
    reported = entries | set(re.findall(r"\b([a-z_]+) = ", text))
    reported |= set(re.findall(r"\[([a-z_]+)\]", text))
    if not read or not entries:
        return [f"{page.name}: nothing was found to compare"]
    return [
        f"{page.name} has no entry for {key}, which is read"
        for key in sorted(read - reported)
    ] + [
        f"{page.name} has an entry for {key}, which is not read"
        for key in sorted(entries - read)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=pathlib.Path, required=True)
    folder = parser.parse_args().source / "daemon/fleet/config"
    mistakes = [
        mistake
        for page, sources in PAGES.items()
        for mistake in mistakes_of(
            folder / page, [folder / source for source in sources]
        )
    ]
    for mistake in mistakes:
        print(mistake)
    print(f"{len(PAGES)} pages compared, {len(mistakes)} mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
