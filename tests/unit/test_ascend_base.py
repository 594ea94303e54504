"""Bases of the flavour `ascend`: which plugins are left out, which bases refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from patchkit.ascend_base import (
    PLATFORMS,
    InstalledVLLM,
    Plugin,
    check_installed,
    platform_packages,
    plugins_to_load,
)
from patchkit.errors import Refused, UsageError
from patchkit.image_base import find_base
from patchkit.releases import PROJECT, load_releases
from patchkit.simulated_cann import BUILD_NEEDS
from patchkit.smoke_checks import Smoke
from patchkit.smoke_npu import judge
from patchkit.upstream_env import NPU_NEEDS

ROOT = "/vllm-workspace/vllm"
GENERAL = "vllm.general_plugins"
RESOLVER = Plugin("lora_filesystem_resolver", GENERAL, "vllm")
ASCEND = (
    Plugin("ascend", PLATFORMS, "vllm_ascend"),
    Plugin("ascend_kv_connector", GENERAL, "vllm_ascend"),
)


def test_nothing_is_set_without_an_out_of_tree_platform() -> None:
    assert plugins_to_load([]) is None
    assert plugins_to_load([RESOLVER]) is None


@pytest.mark.parametrize(
    ("others", "listed"),
    [
        ([], ""),
        ([RESOLVER], "lora_filesystem_resolver"),
        # One name in two packages: vLLM knows names alone, so neither is loaded.
        ([RESOLVER, Plugin("ascend", GENERAL, "other")], "lora_filesystem_resolver"),
        ([RESOLVER, Plugin("b", "vllm.stat_logger_plugins", "b")], "b,lora_filesystem"),
    ],
)
def test_all_of_a_platforms_package_is_left_out(
    others: list[Plugin], listed: str
) -> None:
    found = plugins_to_load([*ASCEND, *others])
    assert found is not None
    assert found.startswith(listed)
    assert "ascend" not in found
    assert platform_packages([*ASCEND, *others]) == ["vllm_ascend"]


def notes(**known: object) -> list[str]:
    vllm = InstalledVLLM(ROOT, **{"version": "0.25.1+empty", **known})  # type: ignore[arg-type]
    return check_installed(vllm, load_releases().find("0.25"), "some/image")


def test_vllm_of_target_empty() -> None:
    assert notes() == []
    assert notes(version="0.25.1") == []


@pytest.mark.parametrize("version", ["0.25.1+cpu", "0.25.1+cu130"])
def test_vllm_for_another_device(version: str) -> None:
    with pytest.raises(Refused, match=re.escape(f"holds vLLM {version}, built for c")):
        notes(version=version)


def test_no_torch_npu() -> None:
    with pytest.raises(Refused, match="has vLLM and no torch_npu"):
        notes(has_torch_npu=False)


def test_work_trees() -> None:
    commit = "0123456789abcdef"
    assert notes(commit=commit, tags=("latest", "v0.25.0")) == [
        f"{ROOT} is a git work tree at v0.25.0"
    ]
    (note,) = notes(commit="")
    assert "no git is there to ask" in note
    for tags, said in ((("v0.26.0",), r" \(v0.26.0\)"), ((), "")):
        wanted = f"at 0123456789ab{said}, not at v0.25.1 or v0.25.0"
        with pytest.raises(Refused, match=wanted):
            notes(commit=commit, tags=tags)


def test_the_pinned_base_has_no_digest_yet() -> None:
    release = load_releases().find("0.25")
    with pytest.raises(UsageError, match=r"quay.io/ascend/cann.*has no digest") as said:
        find_base(None, release, "", "ascend")
    assert "make pins" in said.value.hint
    with pytest.raises(UsageError, match="names no image for ascend"):
        find_base(None, load_releases().find("0.33"), "", "ascend")


def test_the_stand_in_has_what_the_dockerfile_asks_for() -> None:
    """Else a build on it would look for a network."""
    text = (PROJECT / "dockerfiles" / "Dockerfile.ascend").read_text()
    (needs,) = re.findall(r'^ARG NPU_NEEDS="(.*)"$', text, re.MULTILINE)
    assert set(needs.split()) <= set(NPU_NEEDS)
    for need in BUILD_NEEDS:
        assert need in text


RUN = {
    "platform": "vllm.platforms.npu.NPUPlatform",
    "device": "npu",
    "tokens": [[1, 2], [3]],
    "distinct": 21,
    "not_greedy": 0,
    "sizes": [1],
    "trace_modes": {"FULL": 1, "PIECEWISE": 1},
    "index": [{"batch_size": 1}, {"batch_size": 1}],
    "annotations": ["execute_sqsq"],
}


def failed(**runs: dict[str, object]) -> list[str]:
    smoke = Smoke("image", "base")
    theirs = {"platform": "vllm.platforms.interface.UnspecifiedPlatform"}
    every = {"eager": RUN, "graphs": RUN, "unpatched": theirs}
    judge(smoke, {name: {**run, **runs.get(name, {})} for name, run in every.items()})
    return [check.name for check in smoke.checks if not check.passed]


def test_checks_on_the_engine() -> None:
    assert failed() == []
    assert failed(eager={"device": "cpu"}) == [
        "the built-in platform serves device npu"
    ]
    assert failed(eager={"platform": "vllm_ascend.platform.NPUPlatform"})
    assert failed(unpatched={"platform": RUN["platform"]})
    assert failed(eager={"distinct": 20}) == ["the tokens tell runs apart"]
    assert len(failed(eager={"not_greedy": 1}, graphs={"not_greedy": 2})) == 2
    for modes in ({}, {"FULL": 2}, {"FULL": 1, "PIECEWISE": 2}):
        assert "a capture trace for each graph" in failed(graphs={"trace_modes": modes})
    assert failed(graphs={"index": []}) == ["their index names each"]
    assert failed(graphs={"annotations": ["execute_1"]})


@pytest.mark.parametrize("kit", ["ascend-toolkit", "nnal/atb"])
def test_the_entry_point_takes_canns_settings(kit: str, tmp_path: Path) -> None:
    script = PROJECT / "dockerfiles" / "ascend" / "on-cann.sh"
    command = [str(script), "sh", "-c", 'echo "${CANN-none} $1"', "sh", "a b"]
    environment = {"PATH": "/usr/bin:/bin", "ASCEND_HOME": str(tmp_path)}

    def said() -> str:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert said() == "none a b\n"
    settings = tmp_path / kit / "set_env.sh"
    settings.parent.mkdir(parents=True)
    settings.write_text("false\nexport CANN=set\n")
    assert said() == "set a b\n"
