"""The series in its pinned tree: vLLM's own capture functions, run on a CPU.

What is tested is in ``in_tree``, which needs torch and so an interpreter of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.commit import commit_to_tree
from patchkit.covered_run import tree_environment
from patchkit.diff_coverage import measure
from patchkit.errors import EnvironmentProblem
from patchkit.plan import make_plan
from patchkit.plan_types import Plan
from patchkit.releases import load_releases
from patchkit.series import load_series
from patchkit.source_tree import make_tree
from patchkit.tree_source import TreeSource
from patchkit.upstream import open_source
from patchkit.upstream_env import upstream_python
from patchkit.upstream_tests import run_upstream_tests

RELEASE = load_releases().find("0.25")
OPTION = b"    capture_torch_profiler: bool"
# Of each tree: imports, opens a session with the option off, tells of the option. What
# torch takes to import is spent once: each tree has a process forked after that.
SCRIPT = """
import os, sys
from types import SimpleNamespace
import torch._dynamo, torch._inductor.lowering, transformers

for tree, *modules in (line.split() for line in sys.stdin):
    if os.fork():
        os.wait()
        continue
    sys.path[0] = tree
    for module in modules:
        __import__(module)
    from vllm.config import ProfilerConfig
    from vllm.profiler.capture_traces import trace_capture_session
    config = SimpleNamespace(profiler_config=ProfilerConfig())
    with trace_capture_session(config, "v1"):
        known = hasattr(config.profiler_config, "capture_torch_profiler")
    print("imported", tree, known, flush=True)
    break
"""

# Making the environment the first time takes minutes.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def python(need) -> Path:
    try:
        return upstream_python(RELEASE)
    except EnvironmentProblem as error:
        need(False, f"the upstream environment: {error}")
        raise


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    assert python
    return run_upstream_tests(RELEASE, tmp_path_factory.mktemp("upstream"))


def test_real_capture_functions(run):
    """The whole of ``in_tree``; its output says which test failed."""
    assert run.status == 0, run.output
    # Fewer would mean that some were not collected.
    assert run.passed >= 60, run.output


def test_every_added_line_is_run(run):
    series = load_series(RELEASE)
    source = open_source(RELEASE, paths=series.paths)
    plan = make_plan(series.patches, source, policy="exact")
    files = measure(plan, run.lines)
    assert {file.path for file in files} == set(series.paths)
    assert all(file.executable for file in files)
    assert [file.missing for file in files] == [()] * len(files)


def test_each_prefix_imports(python, tmp_path):
    """A user may stop after any patch: what it touched imports, from that tree.

    The option is accepted only where every site it switches on is there.
    """
    series = load_series(RELEASE)
    whole = tmp_path / "whole"
    make_tree(RELEASE, whole, only="vllm/")
    touched = sorted(
        {c.path.removesuffix(".py").replace("/", ".") for c in _changes(series)}
    )
    jobs = []
    for count in range(1, len(series.patches) + 1):
        tree = tmp_path / f"prefix-{count}"
        shutil.copytree(whole, tree, copy_function=os.link)
        back = _back_to(series.patches, count, tree)
        if back.state == "apply":
            commit_to_tree(back, tree)
        there = [m for m in touched if (tree / f"{m.replace('.', '/')}.py").is_file()]
        jobs.append(" ".join([str(tree), *there]))
    done = subprocess.run(
        [str(python), "-c", SCRIPT],
        input="\n".join(jobs),
        env=tree_environment(whole),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    said = [line.split() for line in lines if line.startswith("imported ")]
    assert [Path(tree).name for _, tree, _ in said] == [
        f"prefix-{count}" for count in range(1, len(jobs) + 1)
    ], done.stderr
    known = [known == "True" for _, _, known in said]
    has_option = [OPTION in patch.data for patch in series.patches]
    has_site = [
        b"vllm.profiler.capture_traces import" in patch.data
        and any(change.path.startswith("vllm/v1/worker/") for change in patch.files)
        for patch in series.patches
    ]
    first = has_option.index(True)
    assert known == [number >= first for number in range(len(jobs))]
    assert not any(has_site[first:])


def _changes(series):
    return [change for patch in series.patches for change in patch.files]


def _back_to(patches, count, tree) -> Plan:
    """A plan from the whole series to its first ``count`` patches."""
    source = TreeSource(tree)
    whole = make_plan(patches, open_source(RELEASE), policy="exact")
    short = make_plan(patches[:count], open_source(RELEASE), policy="exact")
    wanted = {file.path: file.after for file in short.files}
    before = {file.path: file.before for file in whole.files}
    files = []
    for file in whole.files:
        after = wanted.get(file.path, before[file.path])
        now = source.read(file.path)
        if now != after:
            files.append(type(file)(file.path, now, after))
    return Plan("apply" if files else "applied", tuple(files))
