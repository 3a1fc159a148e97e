"""Checks documents: every link leads to a file and a heading that exist, and in
the pages that describe today's tree every file and folder that is named exists.

Reads the *.md files given as arguments; paths are relative to the root. The
design notes may name files of their time, so only their links are checked.
"""

import pathlib
import re
import sys

TODAYS = re.compile(r"README\.md|\.github/CONTRIBUTING\.md|scripts/docs/.*")
LINK = re.compile(r"\]\(([^()\s]+)\)")
QUOTED = re.compile(r"`([^`\s]+)`")
SOURCE = re.compile(r"[\w./-]+\.(?:cc|h|py|S|fbs|scd)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TOP = ("bench", "daemon", "kernels", "scripts", "shim", "tests", "tools")


def anchor(heading: str) -> str:
    """Returns the anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(page: pathlib.Path) -> set[str]:
    text = FENCE.sub("", page.read_text())
    return {anchor(h) for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def broken_links(page: pathlib.Path, text: str) -> list[str]:
    found = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            found.append(f"{page}: {link}: there is no such file")
        elif heading and heading not in anchors(target):
            found.append(f"{page}: {link}: there is no such heading")
    return found


def missing_paths(page: pathlib.Path, text: str, names: set[str]) -> list[str]:
    """Returns an error for each quoted path that does not exist. `names`: the
    names of all sources, because a page gives a file's full path only once."""
    found = []
    for quoted in QUOTED.findall(text):
        in_tree = quoted.split("/")[0] in TOP and "/" in quoted
        if in_tree and re.fullmatch(r"[\w./-]+", quoted):
            exists = pathlib.Path(quoted).exists()
        elif SOURCE.fullmatch(quoted) and "/" not in quoted:
            exists = quoted in names
        else:
            continue
        if not exists:
            found.append(f"{page}: `{quoted}` is not in the tree")
    return found


def main(pages: list[str]) -> int:
    names = {p.name for top in TOP for p in pathlib.Path(top).rglob("*.*")}
    found = []
    for name in pages:
        page = pathlib.Path(name)
        text = FENCE.sub("", page.read_text())
        found += broken_links(page, text)
        if TODAYS.fullmatch(name):
            found += missing_paths(page, text, names)
    print("".join(f"{line}\n" for line in found), end="", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
