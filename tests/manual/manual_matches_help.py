"""Compares what programs say of their options with manual pages and completion.

Every option that `PROGRAM --help` or `fsctl VERB --help` shows must be in the
program's manual page, which may name no other, and bash must complete it.
Prints one line for each mistake, with the file to mend.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys

# Each program's manual page, relative to the source folder.
PROGRAMS = {
    "fineserved": "daemon/fineserved/start/fineserved.8.scd",
    "fineserve-node": "daemon/node/fineserve-node.8.scd",
    "fineserve-proxy": "daemon/proxy/fineserve-proxy.8.scd",
    "fineserve-sim": "tools/lab/sim/fineserve-sim.1.scd",
    "fsctl": "tools/fsctl/fsctl.1.scd",
}
COMPLETION = "scripts/completion.bash"
# Every program has these; manual pages need not say so.
UNIVERSAL = {"--help", "--version"}
FLAG = re.compile(r"--[a-z][a-z0-9-]*")
HELP_LINE = re.compile(r"^ {2,4}(?:-\w,)?(--[a-z][a-z0-9-]*)(.*)")
CHOICES = re.compile(r":\{([^}]*)\}")


def help_of(words: list[str]) -> str:
    run = subprocess.run(
        [*words, "--help"], capture_output=True, text=True, timeout=60
    )
    if run.returncode != 0:
        sys.exit(f"{' '.join(words)} --help exits with {run.returncode}")
    # The rest are examples.
    return run.stdout.split("\nExamples:\n")[0]


def options_of(text: str) -> dict[str, list[str]]:
    """Returns the options that a help text lists, each with its possible values
    if the help names them."""
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := HELP_LINE.match(line):
            values = CHOICES.search(match[2].split("  ")[0])
            options[match[1]] = values[1].split(",") if values else []
    return options


def verbs_of(text: str) -> list[str]:
    """Returns the subcommands that a help text lists."""
    lines = text.splitlines()
    return [m[1] for line in lines if (m := re.match(r"^  ([a-z]+)\b", line))]


class Page:
    """A manual page in scdoc's language."""

    def __init__(self, path: pathlib.Path) -> None:
        self.name = path.name
        self._sections: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in path.read_text().splitlines():
            if line.startswith("# "):
                lines = self._sections.setdefault(line[2:], [])
            else:
                lines.append(line)

    def options(self) -> set[str]:
        """Returns the options that have an entry in OPTIONS."""
        entries = [
            line
            for line in self._sections.get("OPTIONS", [])
            if line.startswith("*--")
        ]
        return set(FLAG.findall("\n".join(entries)))

    def verbs(self) -> dict[str, tuple[str, str]]:
        """Returns the heading and the whole text of each entry of COMMANDS."""
        found: dict[str, tuple[str, str]] = {}
        verb = ""
        in_heading = False
        for line in self._sections.get("COMMANDS", []):
            if match := re.match(r"^\*([a-z]+)\*", line):
                verb, in_heading = match[1], True
            elif not line.startswith("\t\\["):
                in_heading = False
            heading, whole = found.get(verb, ("", ""))
            found[verb] = (
                heading + line + "\n" if in_heading else heading,
                whole + line + "\n",
            )
        found.pop("", None)
        return found


def complete(bin_: pathlib.Path, path: pathlib.Path, words: list[str]) -> set[str]:
    """Returns the words that bash offers for the last of `words`."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        'COMPREPLY=(); _fineserve; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    run = subprocess.run(
        ["bash", "-c", script, "bash", str(path), *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"},
    )
    if run.returncode != 0 or run.stderr:
        sys.exit(f"{path}: {run.stderr or run.returncode}")
    return set(run.stdout.split())


class Check:
    """Collects what one program's documents lack."""

    def __init__(self, bin_: pathlib.Path, source: pathlib.Path, program: str):
        self._program = program
        self._bin = bin_
        self._path = str(bin_ / program)
        self._page_path = PROGRAMS[program]
        self._page = Page(source / self._page_path)
        self._completion = source / COMPLETION
        self.mistakes: list[str] = []

    def _complete(self, *words: str) -> set[str]:
        return complete(self._bin, self._completion, [self._program, *words])

    def _fail(self, text: str) -> None:
        self.mistakes.append(text)

    def _compare(self, what: str, help_: set[str], other: set[str], where: str):
        for flag in sorted(help_ - other):
            self._fail(f"{what} --help shows {flag}, which is missing in {where}")
        for flag in sorted(other - help_):
            self._fail(f"{where} names {flag}, which {what} --help does not show")

    def _check_completion(self, words: list[str], options: dict[str, list[str]]):
        offered = self._complete(*words, "--")
        for flag, values in options.items():
            chosen = {f"{flag}={value}" for value in values} & offered
            values_offered = chosen or not values or self._complete(*words, flag, "")
            if flag not in offered or not values_offered:
                self._fail(
                    f"{' '.join([self._program, *words])} --help shows {flag}, "
                    f"which {COMPLETION} does not complete"
                )

    def run(self) -> None:
        text = help_of([self._path])
        own = options_of(text)
        where = f"{self._page_path} (OPTIONS)"
        self._compare(
            self._program, set(own) - UNIVERSAL, self._page.options(), where
        )
        self._check_completion([], own)
        verbs = verbs_of(text)
        described = self._page.verbs()
        for verb in sorted(set(described) - set(verbs)):
            self._fail(f"{self._page_path} describes {verb}, which is no command")
        for verb in sorted(set(verbs) - self._complete("")):
            self._fail(f"{COMPLETION} does not offer {verb}")
        for verb in verbs:
            self._run_verb(verb, set(own), described.get(verb))

    def _run_verb(
        self, verb: str, own: set[str], entry: tuple[str, str] | None
    ) -> None:
        text = help_of([self._path, verb])
        options = options_of(text)
        for part in verbs_of(text):
            options |= options_of(help_of([self._path, verb, part]))
        if entry is None:
            self._fail(
                f"{self._program} --help lists {verb}, which has no entry "
                f"*{verb}* in {self._page_path} (COMMANDS)"
            )
        else:
            heading, whole = entry
            flags = set(options) - UNIVERSAL
            where = f"{self._page_path} (*{verb}*)"
            what = f"{self._program} {verb}"
            # A heading names only the verb's own flags; the text may also name
            # those of other verbs.
            named = set(FLAG.findall(whole)) & flags | set(FLAG.findall(heading))
            self._compare(what, flags, named - own, where)
        self._check_completion([verb], options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    mistakes: list[str] = []
    compared = 0
    for program in PROGRAMS:
        check = Check(arguments.bin, arguments.source, program)
        check.run()
        mistakes += check.mistakes
        compared += 1
    for mistake in mistakes:
        print(mistake)
    print(f"{compared} programs compared, {len(mistakes)} mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
