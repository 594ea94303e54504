#!/usr/bin/env python3
"""Resolve the image tags of releases.toml to digests, where a registry answers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.pins import Pin, resolve_pins, write_pins
from patchkit.releases import load_releases

WORDS = {
    "as-pinned": "as pinned",
    "not-pinned": "has no digest in releases.toml",
    "moved": "has moved",
    "unknown": "not resolved",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, ask the registries, print what they say."""
    parser = argparse.ArgumentParser(
        prog="tools/pins.py",
        description=__doc__,
        epilog="exit: 0 every tag is as pinned (or was written); 1 some are not; "
        "2 wrong arguments, or a tag that no registry resolved",
    )
    parser.add_argument("--version", metavar="V", help="one release (default: all)")
    parser.add_argument("--registry", metavar="URL", default="", help="ask this mirror")
    parser.add_argument(
        "--write", action="store_true", help="put missing digests into releases.toml"
    )
    parser.add_argument(
        "--moved", action="store_true", help="with --write: those of moved tags too"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    if options.moved and not options.write:
        parser.error("--moved needs --write")
    releases = load_releases()
    wanted = (
        [releases.find(options.version)]
        if options.version
        else list(releases.release.values())
    )
    pins = resolve_pins(wanted, options.registry)
    if options.format == "json":
        print(as_json(pins))
    elif any(pin.found for pin in pins):
        print(as_text(pins))
    states = ("not-pinned", "moved") if options.moved else ("not-pinned",)
    write = [pin for pin in pins if options.write and pin.state in states]
    if write:
        write_pins(releases.file, write)
        print(f"{releases.file}: {len(write)} digests written", file=sys.stderr)
    problems = [pin.problem for pin in pins if pin.problem is not None]
    if problems:
        raise problems[0]
    open_pins = [pin for pin in pins if pin.state != "as-pinned" and pin not in write]
    if any(pin.state == "not-pinned" for pin in open_pins):
        print("pins.py: hint: make pins ARGS=--write", file=sys.stderr)
    if any(pin.state == "moved" for pin in open_pins):
        print(
            "pins.py: hint: a moved tag is another image; after a look at it: "
            'make pins ARGS="--write --moved"',
            file=sys.stderr,
        )
    return EXIT_REFUSED if open_pins else EXIT_OK


def as_text(pins: Sequence[Pin]) -> str:
    """One line an image, and one for each of its architectures."""
    lines = []
    for pin in pins:
        name = f"{pin.release} {pin.image.name}:{pin.image.tag}"
        if pin.found is None:
            lines.append(f"{name}: {WORDS[pin.state]}: {pin.problem}")
            continue
        lines.append(f"{name}: {pin.found.digest} {WORDS[pin.state]}")
        if pin.state == "moved":
            lines.append(f"  pinned: {pin.image.digest}")
        lines += [f"  {platform}: {d}" for platform, d in pin.found.platforms]
    return "\n".join(lines)


def as_json(pins: Sequence[Pin]) -> str:
    """The same as a list of objects."""
    entries = [
        {
            "release": pin.release,
            "image": f"{pin.image.name}:{pin.image.tag}",
            "state": pin.state,
            "pinned": pin.image.digest,
            "digest": pin.found.digest if pin.found else None,
            "platforms": dict(pin.found.platforms) if pin.found else {},
            "problem": str(pin.problem) if pin.problem else None,
        }
        for pin in pins
    ]
    return json.dumps(entries, indent=2)


if __name__ == "__main__":
    sys.exit(run_main(main))
