"""Checks that no two files define a type of one name in one namespace.

Two such types are one to the linker (one-definition rule, [basic.def.odr]): it
keeps one of their inline functions, constructors among them, and the other file
calls it on an object of another size. Neither compiler nor linker sees that.
Types in unnamed namespaces, in functions and in other types are left out, and so
are specialisations of templates.
"""

import pathlib
import re
import sys
from collections import defaultdict

# Text in which braces and names do not count: comments, raw strings, strings,
# characters (but not the quote in 1'000), and lines of the preprocessor.
HIDDEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\""
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
# The begin of a scope: a namespace, a type, or anything else with a brace. Types
# may have attributes in front of their name, and bases after it. `extern "C"` has
# lost its string.
SCOPE = re.compile(
    r"\bnamespace\b\s*(?P<namespace>[\w:]*)\s*\{|(?P<linkage>\bextern\s*\{)"
    r"|(?:(?<=[;{}>])|^)\s*(?:class|struct|union|enum(?:\s+class|\s+struct)?)\b"
    r"(?:\s*\[\[[^\]]*\]\]|\s+alignas\([^)]*\)|\s+[A-Z_]+(?:\([^()]*\))?(?=\s+\w))*"
    r"\s+(?P<type>\w+)(?:\s+final)?\s*(?::(?!:)[^;{}()]*)?\{"
    r"|(?P<open>\{)|(?P<close>\})"
)


def types_of(text: str) -> set[str]:
    """Returns the full names of the types that a file defines for its program."""
    text = HIDDEN.sub(lambda m: "\n" * m[0].count("\n"), text)
    found: set[str] = set()
    scopes: list[str | None] = []  # a namespace's name; None: not for the program
    for match in SCOPE.finditer(text):
        if match["close"]:
            if scopes:
                scopes.pop()
        elif match["type"]:
            if None not in scopes:
                found.add("::".join([s for s in scopes if s] + [match["type"]]))
            scopes.append(None)
        elif match["open"]:
            scopes.append(None)
        else:
            scopes.append("" if match["linkage"] else match["namespace"] or None)
    return found


def violations(paths: list[str]) -> list[str]:
    files: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for name in types_of(pathlib.Path(path).read_text()):
            files[name].append(path)
    return [
        f"{name} is defined in {' and in '.join(sorted(where))}; rename one"
        for name, where in sorted(files.items())
        if len(where) > 1
    ]


if __name__ == "__main__":
    mistakes = violations(sys.argv[1:])
    print("\n".join(mistakes), end="\n" if mistakes else "")
    sys.exit(1 if mistakes else 0)
