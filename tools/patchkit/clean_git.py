"""git on one repository, whatever the user's or the system's configuration says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from patchkit.errors import EnvironmentProblem

# What a configuration would otherwise decide about bytes, or run.
_CONFIG = {
    "apply.ignoreWhitespace": "no",
    "apply.whitespace": "nowarn",
    "commit.gpgSign": "false",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.commentChar": "#",
    "core.eol": "lf",
    "core.excludesFile": os.devnull,
    "core.fileMode": "true",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.precomposeUnicode": "false",
    "core.quotePath": "true",
    "diff.algorithm": "myers",
    "diff.suppressBlankEmpty": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "merge.conflictStyle": "diff3",
    "merge.renames": "true",
    "rerere.enabled": "false",
}
# Attributes of the patched project must not change bytes on their way either, nor
# name a diff driver: the function names of `@@` lines would be others.
ATTRIBUTES = "* -text !eol !ident !filter !working-tree-encoding !diff !merge\n"
# No person's: the same source and series always give the same commit ids.
KIT_IDENTITY = {
    "GIT_AUTHOR_NAME": "vllm-patchkit",
    "GIT_AUTHOR_EMAIL": "vllm-patchkit@localhost",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+0000",
    "GIT_COMMITTER_NAME": "vllm-patchkit",
    "GIT_COMMITTER_EMAIL": "vllm-patchkit@localhost",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+0000",
}


class GitFailed(EnvironmentProblem):
    """git ended with a status that the caller did not expect."""


@dataclass(frozen=True)
class GitAnswer:
    """How git ended: its exit status and what it wrote."""

    status: int
    stdout: bytes
    stderr: str


class CleanGit:
    """Runs git in ``folder``, a work tree or a bare repository.

    Configuration outside of the repository, hooks, replaced objects and every
    ``GIT_*`` variable (a hook's GIT_DIR: pre-commit issue 1795) have no say.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def answer(
        self,
        *words: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> GitAnswer:
        """Run ``git words…`` and return how it ended. Raises without git."""
        try:
            done = subprocess.run(
                self._command(words),
                input=stdin,
                capture_output=True,
                cwd=self.folder,
                env=_environment(env),
                check=False,
            )
        except FileNotFoundError:
            raise self._no_git() from None
        stderr = done.stderr.decode("utf-8", "backslashreplace")
        return GitAnswer(done.returncode, done.stdout, stderr)

    def output(
        self,
        *words: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> bytes:
        """Run git and return what it wrote; raises GitFailed on any status but 0."""
        answer = self.answer(*words, stdin=stdin, env=env)
        if answer.status:
            raise self.failure(words, answer)
        return answer.stdout

    def text(
        self,
        *words: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Return ``output`` as text, without white space around it."""
        data = self.output(*words, stdin=stdin, env=env)
        return data.decode("utf-8", "surrogateescape").strip()

    @contextmanager
    def feeding(self, *words: str) -> Iterator[IO[bytes]]:
        """Run git with a pipe to write to; raises GitFailed when it fails."""
        try:
            process = subprocess.Popen(
                self._command(words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                env=_environment(None),
            )
        except FileNotFoundError:
            raise self._no_git() from None
        assert process.stdin is not None
        broken = False
        try:
            yield process.stdin
        except BrokenPipeError:
            # git ended early; what it said is the reason.
            broken = True
        except BaseException:
            process.kill()
            process.communicate()
            raise
        if broken:
            process.stdin = None
        stdout, stderr = process.communicate()
        if process.returncode or broken:
            said = stderr.decode("utf-8", "backslashreplace")
            raise self.failure(words, GitAnswer(process.returncode, stdout, said))

    def failure(self, words: Sequence[str], answer: GitAnswer) -> GitFailed:
        """Return the exception for a git call that ended badly."""
        lines = [line for line in answer.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("error:", "fatal:"))]
        said = (errors or lines or [f"status {answer.status}"])[0]
        return GitFailed(f"{self.folder}: git {words[0]}: {said}")

    def _command(self, words: Sequence[str]) -> list[str]:
        config = {**_CONFIG, "safe.directory": str(self.folder.resolve())}
        options = [
            word for key, value in config.items() for word in ("-c", f"{key}={value}")
        ]
        return ["git", "--no-replace-objects", *options, *words]

    def _no_git(self) -> EnvironmentProblem:
        if not self.folder.is_dir():
            return EnvironmentProblem(f"{self.folder}: no such folder")
        return EnvironmentProblem("git is not installed", hint="install git")


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith("GIT_")
    }
    return {
        **kept,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_EDITOR": ":",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **(more or {}),
    }


def set_attributes(git_folder: Path) -> None:
    """Switch off what attributes of the project would do, in ``info/attributes``."""
    info = git_folder / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text(ATTRIBUTES, encoding="ascii")
