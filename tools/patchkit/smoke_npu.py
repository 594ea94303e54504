"""Smoke tests of the flavour ``ascend``: vLLM's engine on the simulated NPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from patchkit import image_labels as labels
from patchkit.errors import UsageError
from patchkit.image_run import run_inside
from patchkit.smoke_checks import Smoke
from patchkit.step_progress import step_progress

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image

NOT_SHOWN = (
    "not shown here: anything of CANN or of an NPU; the device was simulated on host "
    "memory. tests/npu/on_hardware.sh is for a machine that has one"
)
_PLATFORM = "vllm.platforms.npu.NPUPlatform"
_GRAPHS = "FULL_AND_PIECEWISE"


def need_simulated_cann(image: Image, reference: str) -> None:
    """Raise UsageError for an image on a real CANN, which needs a real NPU."""
    if labels.SIMULATED not in (image.labels or {}):
        raise UsageError(
            f"{reference} is not on the simulated runtime; its engine needs an NPU",
            hint="on a machine with one: tests/npu/on_hardware.sh VERSION; here: "
            "make image FLAVOUR=ascend BASE=local",
        )


def check_npu_engine(
    smoke: Smoke, client: docker.DockerClient, image: Image, base: Image
) -> None:
    """Run the engine eagerly, and with graphs that are captured under the profiler.

    The reference is transformers on the CPU, in the same image: the unpatched vLLM
    has no platform for the device, which is a check of its own.
    """
    smoke.not_shown = NOT_SHOWN
    label = (image.labels or {}).get(labels.SIMULATED)
    smoke.check("a label says that CANN is simulated", bool(label), label)
    runs: dict[str, Any] = {}
    for name, used, words in (
        ("eager", image, {"mode": "eager"}),
        ("graphs", image, {"mode": _GRAPHS, "profile": True}),
        ("unpatched", base, {"mode": "platform"}),
    ):
        with step_progress(f"running the engine on the simulated NPU: {name}"):
            runs[name] = run_inside(client, used, "npu_engine.py", json.dumps(words))
    smoke.facts["engine"] = runs
    judge(smoke, runs)


def judge(smoke: Smoke, runs: dict[str, Any]) -> None:
    """The checks on what the three runs gave."""
    eager, graphs = runs["eager"], runs["graphs"]
    chosen = f"{eager['platform']}, device {eager['device']}"
    smoke.check(
        "the built-in platform serves device npu",
        eager["platform"] == _PLATFORM and eager["device"] == "npu",
        chosen,
    )
    theirs = runs["unpatched"]["platform"]
    smoke.check("the unpatched image has no such platform", theirs != _PLATFORM, theirs)
    spread = f"{eager['distinct']} distinct tokens"
    smoke.check("the tokens tell runs apart", eager["distinct"] > 20, spread)
    count = sum(map(len, eager["tokens"]))
    for name, run in (("eager", eager), (f"with {_GRAPHS} graphs", graphs)):
        wrong = run["not_greedy"]
        smoke.check(
            f"greedy tokens of transformers on the CPU, {name}",
            wrong == 0,
            f"{wrong} of {count} tokens differ" if wrong else f"{count} tokens",
        )
    modes = graphs["trace_modes"]
    seen = ", ".join(f"{number} {mode}" for mode, number in sorted(modes.items()))
    both = set(modes) == {"FULL", "PIECEWISE"} and len(set(modes.values())) == 1
    smoke.check("a capture trace for each graph", both, seen or "none")
    sizes = sorted({entry["batch_size"] for entry in graphs["index"]})
    named = len(graphs["index"]) == sum(modes.values()) and sizes == graphs["sizes"]
    smoke.check("their index names each", named, f"sizes {sizes}")
    detailed = [a for a in graphs["annotations"] if "sqsq" in a]
    smoke.check(
        "profiled steps carry detailed annotations", bool(detailed), detailed[:1]
    )
