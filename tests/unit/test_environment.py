"""A machine that lacks something is told in one line, exit 2: no bug of the kit."""

from __future__ import annotations

import codecs
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_apply_cli import AFTER, BEFORE, run, write
from test_apply_cli import patch as patch  # noqa: PLC0414
from test_apply_cli import tree as tree  # noqa: PLC0414
from test_commit import snapshot

import apply
import verify_hunks
from patchkit import command_line
from patchkit.errors import EXIT_BUG

NOBODY = 65534
Main = Callable[[list[str]], int]


def in_process(main: Main, *words: object, umask: int = 0o022) -> tuple[int, str]:
    """Run a command as a user who is not root; its exit code and all it said.

    Forked, with all that is imported late: the interpreter's own folder may be closed
    to that user.
    """
    pytest.importorskip("git")
    codecs.lookup("ascii")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            sys.stdout = sys.stderr = os.fdopen(writer, "w")
            os.umask(umask)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            code = command_line.run(main, [str(word) for word in words])
            sys.stdout.flush()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def give_away(tree: Path, tmp_path: Path) -> None:
    """Let the other user reach the tree, which becomes that user's own."""
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    if os.geteuid() == 0:
        for path in [tree, *tree.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize("words", [("--check",), (), ("--revert",)])
def test_no_temporary_folder(
    tree: Path, patch: Path, monkeypatch, capsys, words: tuple[str, ...]
) -> None:
    if "--revert" in words:
        write(tree, AFTER)
        for path in BEFORE.keys() - AFTER.keys():
            (tree / path).unlink()
    before = snapshot(tree)
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    code = command_line.run(apply.main, ["--root", str(tree), *words, str(patch)])
    said = capsys.readouterr().err
    assert code == 2
    assert "no folder for temporary files" in said
    assert "TMPDIR" in said
    assert snapshot(tree) == before


def test_no_temporary_folder_for_a_bugs_traceback(monkeypatch, capsys) -> None:
    def bug(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    assert command_line.run(bug) == EXIT_BUG
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said.splitlines()[-1]
    assert "Traceback" in said


CAFE = (
    "diff --git a/caf\u00e9 b/caf\u00e9\nnew file mode 100644\n--- /dev/null\n"
    "+++ b/caf\u00e9\n@@ -0,0 +1 @@\n+x\n"
)


def test_a_terminal_that_knows_ascii_alone(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "caf\u00e9.diff"
    path.write_text(CAFE, encoding="utf-8")
    env = {"PYTHONIOENCODING": "ascii"}
    said = run("--root", tree, "--check", path, status=0, env=env).stdout
    assert "would create caf" in said
    assert said.isascii()


def test_a_locale_whose_file_names_are_not_utf8(tree: Path, tmp_path: Path) -> None:
    """Git's names are bytes: written in this locale they would be others."""
    path = tmp_path / "cafe.diff"
    path.write_text(CAFE, encoding="utf-8")
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    said = run("--root", tree, path, status=2, env=env).stderr
    assert "PYTHONUTF8=1" in said


def test_a_root_of_too_long_a_name(patch: Path, capsys) -> None:
    for root in ("n" * 300, "n/" * 3000):
        for main, option in ((apply.main, "--root"), (verify_hunks.main, "--tree")):
            assert command_line.run(main, [option, root, str(patch)]) == 2
            assert "no such folder" in capsys.readouterr().err


def test_a_closed_folder_above_the_root(
    tree: Path, patch: Path, tmp_path: Path, need
) -> None:
    need(os.geteuid() == 0, "becoming another user needs root")
    give_away(tree, tmp_path)
    (tmp_path / "closed").mkdir(mode=0o700)
    tree = tree.rename(tmp_path / "closed" / "tree")
    for main, option in ((apply.main, "--root"), (verify_hunks.main, "--tree")):
        code, said = in_process(main, option, tree, patch)
        assert (code, "Permission denied" in said) == (2, True), said


@pytest.mark.parametrize("name", [".", "pkg"])
def test_a_folder_that_may_be_listed_and_not_entered(
    tree: Path, patch: Path, tmp_path: Path, need, name: str
) -> None:
    need(os.geteuid() == 0, "becoming another user needs root")
    give_away(tree, tmp_path)
    os.chown(tree / name, 0, 0)
    (tree / name).chmod(0o744)
    for main, option in ((apply.main, "--root"), (verify_hunks.main, "--tree")):
        code, said = in_process(main, option, tree, patch)
        assert (code, "ermission denied" in said) == (2, True), said


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o744, 0o700, 0o711])
def test_cached_bytecode_out_of_reach(
    tree: Path, patch: Path, tmp_path: Path, need, mode: int
) -> None:
    """Who may not read it runs none of it; whether it can go decides what is done."""
    need(os.geteuid() == 0, "becoming another user needs root")
    cache = tree / "pkg/__pycache__"
    cache.mkdir()
    (cache / "m.cpython-311.pyc").write_bytes(b"\0" * 32)
    give_away(tree, tmp_path)
    os.chown(cache, 0, 0)
    cache.chmod(mode)
    before = snapshot(tree)
    code, said = in_process(apply.main, "--root", tree, "--check", patch)
    assert code == 0, said
    code, said = in_process(apply.main, "--root", tree, patch)
    assert code in (0, 1), said
    assert (snapshot(tree) == before) == (code == 1)


def test_a_umask_that_closes_folders_to_their_owner(
    tree: Path, patch: Path, tmp_path: Path
) -> None:
    give_away(tree, tmp_path)
    for words in (("--check",), (), ("--revert",), ()):
        code, said = in_process(apply.main, "--root", tree, *words, patch, umask=0o177)
        assert code == 0, said
    wanted = write(tmp_path / "wanted", AFTER)
    give_away(wanted, tmp_path)
    assert snapshot(tree) == snapshot(wanted)


def test_control_characters_of_names_are_escaped(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd\x1b[31m.diff"
    path.write_bytes(
        b'diff --git "a/n\\nl\\033[31m\\351" "b/n\\nl\\033[31m\\351"\n'
        b'new file mode 100644\n--- /dev/null\n+++ "b/n\\nl\\033[31m\\351"\n'
        b"@@ -0,0 +1 @@\n+x\n"
    )
    for action in ("--check", "--status", None, "--status", "--revert"):
        words = [action] if action else []
        said = run("--root", tree, *words, path, status=0).stdout
        assert r"n\nl\x1b[31m\xe9" in said
        assert "\x1b" not in said
    said = run("--root", tree, f"{path}\nx", status=2).stderr
    assert said.count("\n") == 1
    assert "\x1b" not in said
