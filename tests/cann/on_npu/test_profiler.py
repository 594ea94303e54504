"""torch_npu.profiler: what ran on the host is in its traces, in order, and no more."""

from __future__ import annotations

import csv
import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profiler_program import LARGE, SHAPE, SLEEP_SECONDS

PROGRAM = Path(__file__).with_name("profiler_program.py")
ANALYSE = """
from simulated.start import start
start()
from torch_npu.profiler.profiler import analyse
analyse(profiler_path="work/profiling_data")
"""
# Of acl_base_rt.h.
OK, REPEATED, OTHER_CONFIG, RUNS, RUNS_NOT = 0, 100002, 100010, 100042, 100043

Event = dict[str, Any]


def python(*words: str, at: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=at, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module", params=["CPU", "CPU,NPU"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the program left, its raw data parsed by a process of its own."""
    at = tmp_path_factory.mktemp("profiles")
    for command in ([str(PROGRAM), request.param], ["-c", ANALYSE]):
        done = python(*command, at=at)
        assert done.returncode == 0, done.stderr[-4000:]
    return at


def events(trace: Path) -> list[Event]:
    """What ran, by the time of its start; an enclosing event comes first."""
    found = [event for event in json.loads(trace.read_text()) if event["ph"] == "X"]
    for event in found:
        # Microseconds as text: too many digits for a float.
        whole, _, part = event["ts"].partition(".")
        event["start"] = int(whole) * 1000 + int(part)
        event["end"] = event["start"] + round(event["dur"] * 1000)
    return sorted(found, key=lambda event: (event["start"], -event["end"]))


def within(all_events: list[Event], name: str) -> list[Event]:
    (outer,) = [event for event in all_events if event["name"] == name]
    return [
        event
        for event in all_events
        if event is not outer
        and outer["start"] <= event["start"]
        and event["end"] <= outer["end"]
    ]


def computing(some: list[Event]) -> list[str]:
    names = [event["name"] for event in some if event["cat"] == "cpu_op"]
    return [
        name for name in names if "empty" not in name and not name.endswith("fill_")
    ]


def raw(folder: Path) -> list[Path]:
    return sorted((folder / "work" / "profiling_data").iterdir())


def test_operators_are_in_their_part_with_their_shapes(folder: Path) -> None:
    found = events(folder / "first.json")
    # One before the start and one after the stop are not in it; a replay launches none.
    parts = ["eager part", "aten::add", "capture_2_FULL", "aten::silu", "replayed"]
    assert computing(found) == parts
    assert computing(within(found, "eager part")) == ["aten::add"]
    assert computing(within(found, "capture_2_FULL")) == ["aten::silu"]
    assert computing(within(found, "replayed")) == []
    (silu,) = [event for event in found if event["name"] == "aten::silu"]
    assert silu["args"]["Input Dims"] == ",".join(map(str, SHAPE))
    assert "captured_here" in silu["args"]["Call stack"]


def test_a_profiler_has_nothing_of_the_one_before(folder: Path) -> None:
    found = events(folder / "second.json")
    assert computing(found) == ["second part", "aten::sub"]
    assert not any("Call stack" in event["args"] for event in found)


def test_times_are_of_the_host(folder: Path) -> None:
    trace = folder / "second.json"
    (part,) = [event for event in events(trace) if event["name"] == "second part"]
    assert SLEEP_SECONDS < (part["end"] - part["start"]) / 1e9 < SLEEP_SECONDS + 5
    assert 0 < trace.stat().st_mtime - part["end"] / 1e9 < 60


def test_raw_data_is_parsed_by_another_process(folder: Path) -> None:
    parts = []
    for data in raw(folder):
        output = data / "ASCEND_PROFILER_OUTPUT"
        parts += computing(events(output / "trace_view.json"))
        with (output / "operator_memory.csv").open() as text:
            (row,) = csv.DictReader(text)
        # torch_npu adds 32 bytes and rounds to 512.
        assert float(row["Size(KB)"]) == LARGE[0] * LARGE[1] * 4 / 1024 + 0.5
        assert float(row["Duration(us)"]) > 0
        assert row["Device Type"] == "NPU:0"
    assert parts == ["third part", "fourth part"]


def test_no_device_has_written(folder: Path) -> None:
    # CANN's folder is PROF_<number>_<time>_<name>.
    assert [len(list(data.glob("PROF_*"))) for data in raw(folder)] == [0, 0]


@pytest.mark.parametrize(
    ("calls", "codes"),
    [
        ("init start stop start stop finalize", [OK] * 6),
        ("init finalize init finalize", [OK] * 4),
        ("start", [RUNS_NOT]),
        ("stop", [RUNS_NOT]),
        ("finalize", [RUNS_NOT]),
        ("init init finalize", [OK, REPEATED, OK]),
        ("init stop finalize", [OK, RUNS_NOT, OK]),
        ("init start start stop finalize", [OK, OK, RUNS, OK, OK]),
        ("init start stop_other finalize", [OK, OK, OTHER_CONFIG, OK]),
        ("init start finalize stop", [OK, OK, OK, RUNS_NOT]),
    ],
)
def test_calls_out_of_order_are_errors(calls: str, codes: list[int]) -> None:
    cann = ctypes.CDLL("libascendcl.so")
    cann.aclprofCreateConfig.restype = ctypes.c_void_p
    create, device = cann.aclprofCreateConfig, (ctypes.c_uint32 * 1)(0)
    config, other = (
        ctypes.c_void_p(create(device, 1, 0xFF, None, ctypes.c_uint64(2)))
        for _ in range(2)
    )
    do = {
        "init": lambda: cann.aclprofInit(b"/tmp", ctypes.c_size_t(4)),
        "start": lambda: cann.aclprofStart(config),
        "stop": lambda: cann.aclprofStop(config),
        "stop_other": lambda: cann.aclprofStop(other),
        "finalize": cann.aclprofFinalize,
    }
    assert [do[call]() for call in calls.split()] == codes
    assert cann.aclprofFinalize() == RUNS_NOT
    for made in (config, other):
        assert cann.aclprofDestroyConfig(made) == OK


def test_what_the_driver_is_not_asked_here_ends_the_process_by_its_name() -> None:
    maps = Path("/proc/self/maps").read_text()
    (driver,) = {word for word in maps.split() if word.endswith("/libascend_hal.so")}
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).halGetDeviceInfo(0, 0, 1)"
    done = python("-c", program, driver)
    assert done.returncode == -6
    assert "halGetDeviceInfo" in done.stderr
