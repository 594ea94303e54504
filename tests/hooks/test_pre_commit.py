"""The hook, by real pre-commit in a scratch repository."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from bare_python import environment, git

from patchkit.releases import PROJECT


def configure(folder: Path, hooks, **settings: object) -> None:
    config = {
        "repos": [
            {
                "repo": str(hooks.kit),
                "rev": hooks.commit,
                "hooks": [{"id": "verify-hunks", **settings}],
            }
        ]
    }
    # All of JSON is YAML.
    (folder / ".pre-commit-config.yaml").write_text(json.dumps(config))
    git(folder, "add", "-A")


def stage(folder: Path, source: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    shutil.copy(source, folder / name)
    git(folder, "add", "--", name)


def test_good_passes_and_bad_fails_with_its_findings(hooks, scratch, sample) -> None:
    configure(scratch, hooks, args=["--tree", "src", "--"])
    assert "Skipped" in hooks.run(scratch, "run").stdout
    stage(scratch, sample / "patches/good.patch", "patches/good.patch")
    assert "Passed" in hooks.run(scratch, "run").stdout
    stage(scratch, sample / "patches/bad.patch", "patches/good.patch")
    said = hooks.run(scratch, "run", status=1).stdout
    assert "Failed" in said
    assert "patches/good.patch:7: T210 client.py: hunk @@ -10,5 +10,5" in said
    assert "patches/good.patch:12: W301 " in said


def test_names_are_never_options(hooks, scratch, sample) -> None:
    """By the hook's own args; ``.diff`` is a patch too, other names are not."""
    configure(scratch, hooks)
    stage(scratch, sample / "patches/bad.patch", "--all.patch")
    stage(scratch, sample / "patches/bad.patch", "a b.diff")
    stage(scratch, sample / "patches/bad.patch", "c.patch.txt")
    said = hooks.run(scratch, "run", status=1).stdout
    assert "--all.patch:12: W301" in said
    assert "a b.diff:12: W301" in said
    assert "2 patches, 2 files: 2 errors" in said


def test_a_real_commit_is_refused(hooks, scratch, sample) -> None:
    """Inside git's own hook, with the variables that git sets there."""
    configure(scratch, hooks, args=["--tree", "src", "--"])
    hooks.run(scratch, "install")
    commit = ["git", "commit", "-q", "-m", "a patch"]
    options = {
        "cwd": scratch,
        "env": environment(PRE_COMMIT_HOME=str(hooks.home)),
        "capture_output": True,
        "text": True,
    }
    stage(scratch, sample / "patches/bad.patch", "fix.patch")
    refused = subprocess.run(commit, check=False, **options)
    assert refused.returncode == 1
    assert "fix.patch:7: T210" in refused.stdout + refused.stderr
    stage(scratch, sample / "patches/good.patch", "fix.patch")
    done = subprocess.run(commit, check=False, **options)
    assert done.returncode == 0, done.stderr


def test_many_patches_go_to_one_process_in_order(hooks, scratch, sample) -> None:
    """Each stands on the one before; several processes would each see a part."""
    source = scratch / "src" / "many.txt"
    source.write_text("0\n" * 9)
    git(scratch, "add", "-A")
    before = source.read_text()
    for number in range(1, 25):
        source.write_text(f"{number}\n" * 9)
        diff = git(scratch / "src", "diff", "--full-index", "--relative")
        git(scratch, "add", "-A")
        (scratch / f"{number:04}-step.patch").write_text(diff)
    source.write_text(before)
    configure(scratch, hooks, args=["--tree", "src", "--"])
    said = hooks.run(scratch, "run", "--all-files", "--verbose").stdout
    assert "24 patches, 24 files: no findings" in said


def test_installed_anywhere_without_releases(hooks, scratch, sample, tmp_path) -> None:
    configure(scratch, hooks)
    hooks.run(scratch, "install-hooks")

    def verify(*words: object, status: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [hooks.installed(), *map(str, words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    good, bad = sample / "patches/good.patch", sample / "patches/bad.patch"
    verify(good, "--tree", sample / "src", status=0)
    assert "W301" in verify(bad, status=1).stdout
    assert verify("--help", status=0).stdout.startswith("usage: verify-hunks ")
    for words in (["--all"], ["--version", "0.25"], ["--version", "0.25", "--offline"]):
        said = verify(*words, status=2).stderr
        assert said.count("\n") == 1
        assert said.endswith("releases are those of a checkout of the kit\n")


def test_all_modules_are_installed(hooks, scratch) -> None:
    configure(scratch, hooks)
    hooks.run(scratch, "install-hooks")
    [package] = hooks.installed().parents[1].glob("lib/python*/site-packages/patchkit")
    kit = PROJECT / "tools" / "patchkit"
    tracked = git(kit, "ls-files", "-z").split("\0")[:-1]
    there = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert sorted(there) == sorted(tracked)
