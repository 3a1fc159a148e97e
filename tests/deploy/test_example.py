"""An example fleet is served: every model of the file answers through the proxy.

Programs that take the same command lines replace vLLM and MPS.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tomllib

from fleet_site import FleetSite


def check(site: FleetSite, example: pathlib.Path) -> None:
    text = tomllib.loads(example.read_text())
    many = any("gpu" in engine for engine in text["engine"])
    if many:  # whose UUIDs are known only by then
        site.start_daemons()
    fleet = site.adapt(example)
    if many:
        site.stop("fineserved")
    site.start_daemons(fleet)
    mps = example.stem == "mps"
    site.serve(fleet, *(["--mps"] if mps else []))
    for model in text["model"]:
        status, body = site.ask(model["name"])
        assert status == 200, f"{model['name']}: {status} {body}{site.logs()}"
    for uuid in site.uuids():
        held = site.fsctl("--gpu", uuid, "engines").stdout
        assert "KiB/16" in held, f"no view: {held}"
        guarded = example.stem == "guarded"
        assert (" guarded" in held) == guarded, held
    if mps:
        assert (site.folder / "mps.calls").is_file(), "MPS was not asked"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("example", type=pathlib.Path)
    arguments = parser.parse_args()
    gpus = 2 if arguments.example.stem == "two-gpus" else 1
    site = FleetSite(arguments.bin, gpus)
    try:
        check(site, arguments.example)
    finally:
        site.close()
    print(f"{arguments.example.name}: served")
    return 0


if __name__ == "__main__":
    sys.exit(main())
