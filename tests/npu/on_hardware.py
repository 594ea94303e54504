"""Run tests/npu on this machine's NPU and write the result for evidence/.

Started by on_hardware.sh, which looks for the NPU and for CANN.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
sys.path.insert(0, str(PROJECT / "tools"))

from patchkit.command_line import run as run_main  # noqa: E402
from patchkit.errors import EXIT_OK, EXIT_REFUSED, EnvironmentProblem  # noqa: E402
from patchkit.npu_tests import NPUTests, prepare_npu_tests  # noqa: E402
from patchkit.releases import load_releases  # noqa: E402
from patchkit.series import load_series  # noqa: E402

_PLUGIN = PROJECT / "tools/patchkit/in_release/outcome_lines.py"


@dataclass(frozen=True)
class TestRun:
    """Outcomes, a word and a reason by test, and how long all of them took."""

    outcomes: Mapping[str, tuple[str, str]]
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether tests ran and none ended otherwise than passed or skipped."""
        words = {word for word, _ in self.outcomes.values()}
        return "passed" in words and words <= {"passed", "skipped"}


def main(argv: Sequence[str] | None = None) -> int:
    """Facts of the device, the tests, the file."""
    parser = argparse.ArgumentParser(
        prog="tests/npu/on_hardware.sh",
        description=__doc__,
        usage="tests/npu/on_hardware.sh VERSION [--out FILE] [PYTEST ARGUMENT …]",
        allow_abbrev=False,
        epilog="exit: 0 all tests that ran passed; 1 one did not (the result is "
        "written too); 2 no device or environment",
    )
    parser.add_argument("--version", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: evidence/…")
    options, words = parser.parse_known_args(argv)
    release, version = load_releases().find_version(options.version)
    series = load_series(release, "ascend")
    tests = prepare_npu_tests(release, version, None, simulated=False)
    facts = device_facts(tests.python, tests.environment)
    run = run_tests(tests, words)
    result = result_of(version, series.digest, facts, run)
    out = options.out or PROJECT / "evidence" / file_name(release.name, facts)
    out.write_text(json.dumps(result, indent=1) + "\n")
    counts = ", ".join(f"{n} {word}" for word, n in result["counts"].items())
    print(f"{out}: {counts}, in {run.seconds:.0f} s on {facts['device']}")
    return EXIT_OK if run.is_right else EXIT_REFUSED


def device_facts(python: Path, environment: Mapping[str, str]) -> Any:
    """What device_facts.py says; EnvironmentProblem without a device."""
    done = subprocess.run(
        [str(python), str(HERE / "device_facts.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise EnvironmentProblem((done.stderr.strip() or "no word").splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def run_tests(tests: NPUTests, words: Sequence[str]) -> TestRun:
    """pytest with ``words``, its output shown; outcomes also of a run that dies."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "outcomes"
        lines.touch()
        path = [tests.environment["PYTHONPATH"], str(_PLUGIN.parent)]
        began = time.monotonic()
        plugin = ("-p", _PLUGIN.stem)
        subprocess.run(
            [str(tests.python), "-m", "pytest", *plugin, *tests.words(words)],
            env={
                **tests.environment,
                "PYTHONPATH": os.pathsep.join(path),
                "PATCHKIT_OUTCOMES": str(lines),
            },
            check=False,
        )
        seconds = time.monotonic() - began
        read = map(json.loads, lines.read_text().splitlines())
        return TestRun({test: (word, why) for test, word, why in read}, seconds)


def result_of(
    version: str, patch_set: str, facts: Mapping[str, Any], run: TestRun
) -> dict[str, Any]:
    """What evidence/ keeps: no path and no name of the machine."""
    ended = Counter(word for word, _ in run.outcomes.values())
    passed = [test for test, (word, _) in run.outcomes.items() if word == "passed"]
    return {
        "version": version,
        "patch_set": patch_set,
        "date": time.strftime("%Y-%m-%d"),
        **facts,
        "seconds": round(run.seconds),
        "counts": dict(ended),
        "not_passed": {
            test: f"{word}: {_first_line(why)}"
            for test, (word, why) in run.outcomes.items()
            if word != "passed"
        },
        "passed": passed,
    }


def file_name(release: str, facts: Mapping[str, Any]) -> str:
    """E.g. v0.25-ascend910b1-npu.json."""
    device = re.sub(r"[^a-z0-9]+", "", str(facts["device"]).lower())
    return f"v{release}-{device}-npu.json"


def _first_line(reason: str) -> str:
    line = reason.partition("\n")[0]
    return re.sub(r"(/[\w.+-]+){2,}/", "…/", line)[:200]


if __name__ == "__main__":
    sys.exit(run_main(main))
