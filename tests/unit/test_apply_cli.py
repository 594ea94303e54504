"""``tools/apply.py`` as users call it: exit codes, messages, and the bytes left."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import py_compile
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from real_git import diffs, git
from small_disk import read_only, small_disk
from test_commit import snapshot

import apply
from patchkit import command_line, journal
from patchkit.apply_command import tree_version
from patchkit.errors import EnvironmentProblem
from patchkit.extract import Extract
from patchkit.file_state import EXECUTABLE, FileState
from patchkit.folder_handles import parent_handle, root_handle
from patchkit.originals import move_away
from patchkit.releases import Sdist, load_releases
from patchkit.series import load_series
from patchkit.upstream import fetch_sdist, open_source

APPLY = Path(__file__).parents[2] / "tools" / "apply.py"
BEFORE = {
    "pkg/m.py": FileState(b"".join(b"line = %d\n" % n for n in range(30))),
    "pkg/old.py": FileState(b"old = 1\n" * 8),
    "run.sh": FileState(b"#!/bin/sh\n"),
}
AFTER = {
    "pkg/m.py": FileState(
        BEFORE["pkg/m.py"].data.replace(b"line = 9\n", b"nine = 9\n")
    ),
    "pkg/new.py": FileState(b"old = 1\n" * 8),
    "pkg/sub/added.py": FileState(b"added = 1\n"),
    "run.sh": FileState(b"#!/bin/sh\n", EXECUTABLE),
}


def write(root: Path, tree: dict[str, FileState]) -> Path:
    for path, state in tree.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(state.data)
        file.chmod(state.mode & 0o777)
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", BEFORE)


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    (tmp_path / "git").mkdir()
    [data] = diffs(tmp_path / "git", [BEFORE, AFTER])
    path = tmp_path / "change.diff"
    path.write_bytes(data)
    return path


def run(*words: object, status: int, env: dict[str, str] | None = None, **options):
    done = subprocess.run(
        [sys.executable, str(APPLY), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
        **options,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_there_again_and_back(tree: Path, patch: Path, tmp_path: Path) -> None:
    before = snapshot(tree)
    assert "5 files" in run("--root", tree, "--check", patch, status=0).stdout
    assert snapshot(tree) == before
    run("--root", tree, patch, status=0)
    assert snapshot(tree) == snapshot(write(tmp_path / "wanted", AFTER))
    times = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    again = run("--root", tree, patch, status=0)
    assert "already applied" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == times
    run("--root", tree, "--revert", patch, status=0)
    assert snapshot(tree) == before
    assert "none of 1" in run("--root", tree, "--revert", patch, status=0).stdout


def test_status(tree: Path, patch: Path) -> None:
    assert "none of 1" in run("--root", tree, "--status", patch, status=0).stdout
    run("--root", tree, patch, status=0)
    assert "all 1" in run("--root", tree, "--status", patch, status=0).stdout
    (tree / "pkg/m.py").write_bytes(BEFORE["pkg/m.py"].data)
    before = snapshot(tree)
    run("--root", tree, "--status", patch, status=1)
    assert snapshot(tree) == before


def test_json_says_what_was_done(tree: Path, patch: Path) -> None:
    said = json.loads(run("--root", tree, "--format", "json", patch, status=0).stdout)
    assert said["state"] == "applied"
    blobs = {
        entry["path"]: entry["after"] and entry["after"]["blob"]
        for entry in said["files"]
    }
    for path, state in AFTER.items():
        wanted = git(tree, "hash-object", "--stdin", data=state.data).decode().strip()
        assert blobs[path] == wanted
    assert blobs["pkg/old.py"] is None


def test_a_refusal_shows_both_sides_and_changes_nothing(
    tree: Path, patch: Path
) -> None:
    file = tree / "pkg/m.py"
    file.write_bytes(file.read_bytes().replace(b"line = 8\n", b"other = 8\n"))
    before = snapshot(tree)
    said = run("--root", tree, patch, status=1).stdout
    assert "line = 8" in said
    assert "other = 8" in said
    assert "refused; nothing was changed" in said
    assert snapshot(tree) == before


def test_inside_another_repository(tree: Path, patch: Path) -> None:
    git(tree.parent, "init", "-q", ".")
    run("--root", tree, patch, status=0)
    assert (tree / "pkg/new.py").exists()


def test_hostile_git_configuration_has_no_say(
    tree: Path, patch: Path, tmp_path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[core]\nautocrlf = true\neol = crlf\n[apply]\nwhitespace = fix\n"
        "[diff]\nnoprefix = true\n[safe]\ndirectory = /nowhere\n"
    )
    env = {"HOME": str(home), "GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere"}
    run("--root", tree, patch, status=0, env=env)
    assert snapshot(tree) == snapshot(write(tmp_path / "wanted", AFTER))


def test_without_git(tree: Path, patch: Path) -> None:
    done = run("--root", tree, patch, status=0, env={"PATH": "/nonexistent"})
    assert "no git here" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--root", "/nonexistent"), "no such folder"),
        (("--root", "{tree}/run.sh"), "is no folder"),
        (("--root", "{tree}", "--version", "0.25"), "holds no vllm/__init__.py"),
        (("--root", "{tree}", "--version", "9.9"), "no release '9.9'; there are: 0.2"),
        (("--root", "{tree}"), "required"),
        (("--root", "{tree}", "/none.diff"), "no such patch file"),
    ],
)
def test_wrong_calls(tree: Path, patch: Path, words, said: str) -> None:
    filled = [word.format(tree=tree) for word in words]
    if filled[-1] != "/none.diff" and "--version" not in filled and len(filled) == 2:
        filled += [] if said == "required" else [str(patch)]
    before = snapshot(tree)
    done = run(*filled, status=2)
    assert said in done.stderr
    assert snapshot(tree) == before


def test_the_package_itself_as_root(tmp_path: Path) -> None:
    root = write(tmp_path, {"vllm/__init__.py": FileState(b"")})
    done = run("--root", root / "vllm", "--version", "0.25", status=2)
    assert f"--root {root}" in done.stderr


def test_an_interrupted_run_is_undone_first(tree: Path, patch: Path) -> None:
    """Even a check begins by putting back what a killed run left."""
    before = snapshot(tree)
    for action in ("--check", "--status", "--revert", None):
        with root_handle(tree) as root, journal.locked_folder(root, tree) as folder:
            with parent_handle(root, "run.sh") as (parent, name):
                move_away(parent, name, folder, "original-0")
            step = journal.Step("run.sh", "original-0", None)
            journal.write_journal(root, folder, journal.Journal([step]))
        words = ["--root", tree, *([action] if action else []), patch]
        said = run(*words, status=0).stdout
        assert "an interrupted run was undone first: 1 files" in said
        if action:
            assert snapshot(tree) == before
    assert "already applied" in run("--root", tree, patch, status=0).stdout


@pytest.mark.parametrize("action", ["--check", "--status"])
def test_judging_writes_nothing(tree: Path, patch: Path, need, action: str) -> None:
    with read_only(tree, need):
        run("--root", tree, action, patch, status=0)
        if os.geteuid() == 0:
            said = run("--root", tree, patch, status=1).stderr
            assert "may not be written" in said


def test_status_of_each_file(tree: Path, patch: Path, tmp_path: Path) -> None:
    (tmp_path / "git2").mkdir()
    later = {**AFTER, "run.sh": FileState(b"#!/bin/sh\n# 2\n", EXECUTABLE)}
    [data] = diffs(tmp_path / "git2", [AFTER, later])
    second = tmp_path / "second.diff"
    second.write_bytes(data)
    run("--root", tree, patch, status=0)
    said = run("--root", tree, "--status", patch, second, status=0).stdout
    assert "the first 1 of 2" in said
    assert "  patched  pkg/m.py" in said
    assert "   1 of 2  run.sh" in said
    words = ("--root", tree, "--status", "--format", "json", patch, second)
    standing = json.loads(run(*words, status=0).stdout)["standing"]
    assert {"path": "run.sh", "applied": 1, "total": 2} in standing


def test_modes_and_owners_of_removed_files_come_back(
    tree: Path, patch: Path, need
) -> None:
    (tree / "pkg/old.py").chmod(0o640)
    (tree / "run.sh").chmod(0o604)
    if os.geteuid() == 0:
        os.chown(tree / "pkg/old.py", 65534, 65534)
    before = snapshot(tree)
    run("--root", tree, patch, status=0)
    assert snapshot(tree)["run.sh"][0] == "0o100705"
    run("--root", tree, "--revert", patch, status=0)
    assert snapshot(tree) == before


@pytest.mark.parametrize("words", [(), ("--check",), ("--status",)])
def test_offline_is_taken(tree: Path, patch: Path, words) -> None:
    run("--root", tree, "--offline", *words, patch, status=0)


def test_a_flavour_needs_a_release(tree: Path, patch: Path) -> None:
    done = run("--root", tree, "--flavour", "ascend", patch, status=2)
    assert "--flavour goes with --version" in done.stderr


@pytest.mark.parametrize("cwd", ["/", "{tree}", "{tree}/pkg"])
def test_from_any_folder(tree: Path, patch: Path, tmp_path: Path, cwd: str) -> None:
    where = Path(cwd.format(tree=tree))
    root = os.path.relpath(tree, where)
    run("--root", root, patch, status=0, cwd=where)
    assert snapshot(tree) == snapshot(write(tmp_path / "wanted", AFTER))


def test_a_tree_of_another_user(tree: Path, patch: Path, tmp_path: Path, need) -> None:
    """One folder may not be written: nothing is, in the others either."""
    need(os.geteuid() == 0, "becoming another user needs root")
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    for path in [tree, *tree.rglob("*")]:
        os.chown(path, 65534, 65534)
    os.chown(tree / "pkg", 0, 0)
    before = snapshot(tree)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            sys.stderr = os.fdopen(writer, "w")
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            code = command_line.run(apply.main, ["--root", str(tree), str(patch)])
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert "may not be written" in said
    assert snapshot(tree) == before


def test_a_root_that_may_not_be_read(tree: Path, patch: Path, need) -> None:
    need(os.geteuid() == 0, "becoming another user needs root")
    tree.chmod(0o700)
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            code = command_line.run(apply.main, ["--root", str(tree), str(patch)])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2


def test_a_full_disk(patch: Path, tmp_path: Path, need) -> None:
    with small_disk(tmp_path / "disk", 64, need) as disk:
        root = write(disk / "tree", BEFORE)
        room = os.statvfs(disk)
        (disk / "filler").write_bytes(b"x" * (room.f_bfree - 2) * room.f_frsize)
        before = snapshot(root)
        said = run("--root", root, patch, status=2).stderr
        assert "the disk is full; nothing was changed" in said
        assert snapshot(root) == before


def test_a_plugins_version_is_not_vllms(tmp_path: Path) -> None:
    (tmp_path / "vllm_ascend-0.9.0.dist-info").mkdir()
    assert tree_version(tmp_path) is None
    (tmp_path / "vllm-0.25.0+cpu.dist-info").mkdir()
    assert tree_version(tmp_path) == "0.25.0+cpu"


@pytest.mark.parametrize("mode", ["unchecked-hash", "checked-hash", "timestamp"])
def test_old_bytecode_does_not_run(tree: Path, patch: Path, mode: str) -> None:
    invalidation = {
        "unchecked-hash": py_compile.PycInvalidationMode.UNCHECKED_HASH,
        "checked-hash": py_compile.PycInvalidationMode.CHECKED_HASH,
        "timestamp": py_compile.PycInvalidationMode.TIMESTAMP,
    }[mode]
    compileall.compile_dir(tree / "pkg", quiet=1, invalidation_mode=invalidation)
    run("--root", tree, patch, status=0)
    code = "import pkg.m; print(pkg.m.nine)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "9\n"


# Upstream's neighbours, which the series must refuse; digests as the index has them.
OTHERS = [
    Sdist(
        version="0.24.0",
        file="vllm-0.24.0.tar.gz",
        sha256="0862453adc1f3339f1a0c9dca1179c34d6ed6e118f87b6e5bddd120af614ac66",
    ),
    Sdist(
        version="0.26.0",
        file="vllm-0.26.0.tar.gz",
        sha256="23e9fa19d7e20ce7dcc1c074d41503e2116d23f19e688f5d5ea91b741f958502",
    ),
]
RELEASE = load_releases().find("0.25")
PLAIN = ("vllm/__init__.py", "PKG-INFO")


def source_tree(sdist: Sdist, root: Path, need) -> Path:
    """The files of an sdist that the series touches, and what tells its version."""
    extract = Extract(sdist.sha256, partial(fetch_sdist, sdist))
    paths = (*load_series(RELEASE).paths, *PLAIN)
    try:
        extract.need(paths)
    except EnvironmentProblem as error:
        need(False, str(error))
    for path in paths:
        state = extract.read(path)
        if state is not None:
            write(root, {path: state})
            (root / path).chmod(0o640)
    return root


@pytest.mark.parametrize("version", RELEASE.versions)
def test_on_the_pinned_sources(version: str, tmp_path: Path, need) -> None:
    root = source_tree(RELEASE.find_sdist(version), tmp_path / "src", need)
    before = snapshot(root)
    said = json.loads(
        run("--root", root, "--version", version, "--format", "json", status=0).stdout
    )
    assert said["state"] == "applied"
    assert said["patch_set"] == load_series(RELEASE).digest
    changed = snapshot(root)
    assert changed != before
    run("--root", root, "--version", "0.25", status=0)
    assert snapshot(root) == changed
    run("--root", root, "--version", "v0.25", "--revert", status=0)
    assert snapshot(root) == before


@pytest.mark.parametrize("other", OTHERS, ids=lambda sdist: sdist.version)
def test_on_other_releases(other: Sdist, tmp_path: Path, need) -> None:
    root = source_tree(other, tmp_path / "src", need)
    before = snapshot(root)
    said = run("--root", root, "--version", "0.25", status=1).stdout
    assert "expected (patch)" in said
    assert f"the tree says it is vLLM {other.version}" in said
    assert snapshot(root) == before


def test_a_wheels_record_stays_true(tmp_path: Path, need) -> None:
    """An installed tree: its RECORD follows, and comes back byte for byte."""
    root = source_tree(RELEASE.find_sdist("0.25.0"), tmp_path / "site", need)
    rows = []
    for path in sorted(load_series(RELEASE).paths):
        file = root / path
        if file.exists():
            digest = hashlib.sha256(file.read_bytes()).digest()
            rows.append(f"{path},sha256={_base64(digest)},{file.stat().st_size}")
    record = root / "vllm-0.25.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("\n".join([*rows, "vllm-0.25.0.dist-info/RECORD,,", ""]))
    before = snapshot(root)
    run("--root", root, "--version", "0.25", status=0)
    listed = dict(
        line.split(",", 1) for line in record.read_text().splitlines() if "=" in line
    )
    source = open_source(RELEASE, version="0.25.0")
    for path in load_series(RELEASE).paths:
        data = (root / path).read_bytes()
        wanted = f"sha256={_base64(hashlib.sha256(data).digest())},{len(data)}"
        assert listed[path] == wanted, source.label
    run("--root", root, "--version", "0.25", "--revert", status=0)
    assert snapshot(root) == before


def _base64(digest: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
