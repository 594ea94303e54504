#!/usr/bin/env python3
"""Build a patched image of a release: its base, and one layer of changed files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from patchkit.command_line import run as run_main
from patchkit.errors import EXIT_OK, EXIT_REFUSED
from patchkit.image_build import Built, SeriesRefused, build_image
from patchkit.releases import load_releases
from patchkit.report import as_json, as_text

EXAMPLES = """\
examples:
  tools/image.py --version 0.25                    on the release's pinned image
  tools/image.py --version 0.25 --base local       on a CPU base made on the spot
  tools/image.py --version 0.25 --base my/vllm@sha256:… --tag my/vllm:0.25-traced
  tools/image.py --version 0.25 --flavour ascend   vLLM put on the pinned CANN image
  tools/image.py --version 0.25 --flavour ascend --base local    on a simulated CANN

exit: 0 built; 1 refused, no image was made; 2 no engine, no registry, wrong
arguments; 3 a bug of the kit
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, build, print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tools/image.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", required=True, metavar="V", help="0.25, v0.25 …")
    parser.add_argument("--flavour", default="capture", help="capture or ascend")
    parser.add_argument(
        "--base", default="", help="a reference, or 'local'; default: the pinned image"
    )
    parser.add_argument(
        "--tag",
        default="",
        help="default: vllm-patched:V-FLAVOUR, …-simulated-cann on a simulated CANN",
    )
    parser.add_argument("--policy", choices=("exact", "context"), default="exact")
    parser.add_argument(
        "--package-root",
        help="the image's folder that holds vllm/ (default: looked for)",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    try:
        built = build_image(
            load_releases().find(options.version),
            flavour=options.flavour,
            base=options.base,
            reference=options.tag,
            policy=options.policy,
            package_root=options.package_root,
        )
    except SeriesRefused as refused:
        for finding in refused.findings:
            print("\n".join(as_text(finding)), file=sys.stderr)
        print(f"image.py: {refused}; no image was made", file=sys.stderr)
        return EXIT_REFUSED
    if options.format == "json":
        entry = {**vars(built), "findings": [as_json(f) for f in built.findings]}
        print(json.dumps(entry, indent=2))
    else:
        _print_text(built)
    return EXIT_OK


def _print_text(built: Built) -> None:
    for finding in built.findings:
        print("\n".join(as_text(finding)))
    for path in built.files:
        print(f"changed {path}")
    for note in built.notes:
        print(f"note: {note}")
    print(f"base {built.base} {built.base_digest}, vLLM {built.version}")
    print(f"patch set {built.patch_set}, policy {built.policy}")
    print(
        f"built {built.reference}: one layer, {len(built.files)} files, "
        f"{built.layer_bytes} bytes"
    )


if __name__ == "__main__":
    sys.exit(run_main(main))
