"""``docs/verify-in-your-ci.md``: what it shows is what happens."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from bare_python import git

from patchkit.releases import PROJECT

PAGE = PROJECT / "docs" / "verify-in-your-ci.md"


def blocks(kind: str) -> list[str]:
    """The page's code blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.S | re.M)


def configure(folder: Path, hooks, text: str) -> None:
    """Make a configuration of the page a real one."""
    for words in ("https://github.com/OWNER/vllm-patchkit", "COMMIT"):
        assert text.count(words) == 1
    text = text.replace("https://github.com/OWNER/vllm-patchkit", str(hooks.kit))
    config = folder / ".pre-commit-config.yaml"
    config.write_text(text.replace("COMMIT", hooks.commit))
    git(folder, "add", "-A")


def test_the_outputs(act, sample: Path) -> None:
    job = act(sample, patches="patches/bad.patch", tree="src")
    assert job.status == 1
    assert blocks("text") == ["\n".join([*job.stdout.split("\n")[:-2], ""])]
    assert blocks("json") == [Path(job.outputs["sarif"]).read_text()]


def test_the_hook(hooks, scratch: Path, sample: Path) -> None:
    shutil.copytree(sample / "patches", scratch / "patches")
    (scratch / "patches/bad.patch").unlink()
    configure(scratch, hooks, blocks("yaml")[0])
    assert "Passed" in hooks.run(scratch, "run").stdout
    shutil.copy(sample / "patches/bad.patch", scratch / "patches/good.patch")
    git(scratch, "add", "-A")
    assert "T210" in hooks.run(scratch, "run", status=1).stdout


def test_the_hook_on_a_series(hooks, scratch: Path, sample: Path) -> None:
    """The second patch, alone in the commit, stands on the first."""
    (scratch / "patches").mkdir()
    shutil.copy(sample / "patches/good.patch", scratch / "patches/0001-first.patch")
    source = scratch / "src" / "client.py"
    before = source.read_text()
    first = before.replace("sleep(attempt)", "sleep(2**attempt)")
    source.write_text(first)
    git(scratch, "add", "-A")
    source.write_text(first.replace("2**attempt", "3**attempt"))
    diff = git(scratch / "src", "diff", "--full-index", "--relative")
    source.write_text(before)
    configure(scratch, hooks, blocks("yaml")[1])
    git(scratch, "commit", "-q", "-m", "the first")
    (scratch / "patches/0002-second.patch").write_text(diff)
    git(scratch, "add", "-A")
    said = hooks.run(scratch, "run", "--verbose").stdout
    assert "2 patches, 2 files: no findings" in said
    # On its own it does not.
    configure(scratch, hooks, blocks("yaml")[0])
    assert "T2" in hooks.run(scratch, "run", status=1).stdout


def test_the_workflow(act, action, load_yaml, sample: Path) -> None:
    [job] = load_yaml(blocks("yaml")[2])["jobs"].values()
    checkout, verify, upload = job["steps"]
    assert re.fullmatch(r"actions/checkout@[0-9a-f]{40}", checkout["uses"])
    assert set(verify["with"]) <= set(action["inputs"])
    assert act(sample, **verify["with"]).status == 1
    for text in (upload["if"], upload["with"]["sarif_file"]):
        [(step, output)] = re.findall(r"steps\.(\w+)\.outputs\.(\w+)", text)
        assert step == verify["id"]
        assert output in action["outputs"]
