"""A pytest plugin, loaded by a release's own interpreter: outcomes as lines of JSON.

Each is written at once, so that a run which dies says in which test it died.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = "PATCHKIT_OUTCOMES"


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module or class that cannot be collected, or is skipped as a whole."""
    if report.failed:
        _write(report.nodeid, "not collected", _reason(report))
    elif report.skipped:
        _write(report.nodeid, "skipped", _reason(report))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What will be run, before any of it is."""
    for item in session.items:
        _write(item.nodeid, "not run")


def pytest_runtest_logstart(nodeid: str) -> None:
    """The outcome, should no other follow."""
    _write(nodeid, "died")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The outcome of a phase that ends the test, or breaks it after its end."""
    expected = hasattr(report, "wasxfail")
    if report.failed:
        word = "failed" if report.when == "call" else "error"
        _write(report.nodeid, word, _reason(report))
    elif report.skipped:
        _write(report.nodeid, "xfailed" if expected else "skipped", _reason(report))
    elif report.when == "call":
        _write(report.nodeid, "xpassed" if expected else "passed")


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    what = report.longrepr
    if isinstance(what, tuple):
        return what[2].removeprefix("Skipped: ")
    crash = getattr(what, "reprcrash", None)
    if crash:
        return str(crash.message)
    # Of a module that does not import there is text alone.
    lines = report.longreprtext.strip().splitlines()
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[-1]


def _write(test: str, word: str, reason: str = "") -> None:
    with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps([test, word, reason]) + "\n")
