"""Pinned sources in one git repository of the cache: a commit for each sdist.

Trees that differ by a release share most of their objects, and git compares two of
them, renames included, in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from patchkit.cache import cache_folder, disk_problems
from patchkit.clean_git import CleanGit, set_attributes
from patchkit.errors import EnvironmentProblem
from patchkit.extract import open_sdist
from patchkit.file_state import EXECUTABLE, REGULAR, FileState, checked_parts
from patchkit.releases import Sdist
from patchkit.step_progress import step_progress
from patchkit.upstream import fetch_sdist

FOLDER = "sources.git"
_EXECUTABLE = 0o111
# The kit's own, fixed: an sdist always gives the same commit.
_WHO = b"vllm-patchkit <vllm-patchkit@localhost> 946684800 +0000"


def open_store() -> CleanGit:
    """The repository, made where it is missing."""
    folder = cache_folder(FOLDER)
    store = CleanGit(folder)
    with disk_problems(folder):
        if not (folder / "HEAD").is_file():
            store.output("init", "-q", "--bare", "--template=", ".")
        set_attributes(folder)
    return store


def source_ref(sdist: Sdist) -> str:
    """The ref that holds a pinned sdist."""
    return f"refs/sdists/{sdist.sha256}"


def store_source(sdist: Sdist, *, offline: bool = False) -> str:
    """The id of the commit that holds the files of a pinned sdist, no parents.

    Links are left out, as in trees. Imported on first use, which takes some seconds.
    Raises EnvironmentProblem when the sdist cannot be had or is none.
    """
    store = open_store()
    ref = source_ref(sdist)
    found = store.answer("rev-parse", "-q", "--verify", f"{ref}^{{commit}}")
    if found.status == 0:
        commit = found.stdout.decode().strip()
        if store.answer("cat-file", "-e", f"{commit}^{{tree}}").status == 0:
            return commit
    archive = fetch_sdist(sdist, offline=offline)
    with step_progress(f"reading {sdist.file} into the store of sources"):
        _import(store, sdist, archive)
    return store.text("rev-parse", "--verify", f"{ref}^{{commit}}")


def _import(store: CleanGit, sdist: Sdist, archive: Path) -> None:
    message = (
        f"vLLM {sdist.version}, as pinned\n\n{sdist.file}\nsha256 {sdist.sha256}\n"
    ).encode()
    with store.feeding("fast-import", "--quiet", "--force", "--done") as pipe:
        pipe.write(
            b"commit %s\ncommitter %s\n" % (source_ref(sdist).encode(), _WHO)
            + b"data %d\n%s\n" % (len(message), message)
        )
        with open_sdist(archive) as members:
            for path, member, read in members:
                if not member.isfile():
                    continue
                mode = b"755" if member.mode & _EXECUTABLE else b"644"
                data = read()
                pipe.write(
                    b"M %s inline %s\n" % (mode, _quoted(path))
                    + b"data %d\n" % len(data)
                )
                pipe.write(data)
                pipe.write(b"\n")
        pipe.write(b"done\n")


def _quoted(path: str) -> bytes:
    name = path.encode("utf-8", "surrogateescape")
    name = name.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + name + b'"'


class CommitSource:
    """The files of one commit as a ``Source``; read once each."""

    def __init__(self, git: CleanGit, commit: str, label: str) -> None:
        self._git = git
        self.commit = commit
        self.label = label
        self._read: dict[str, FileState | None] = {}
        self._paths: list[str] | None = None

    def read(self, path: str) -> FileState | None:
        """The file at ``path``, None where there is none; see ``Source.read``."""
        checked_parts(path)
        if path not in self._read:
            self._read[path] = self._fetch(path)
        return self._read[path]

    def _fetch(self, path: str) -> FileState | None:
        listed = self._git.output(
            "--literal-pathspecs", "ls-tree", "-z", self.commit, "--", path
        )
        entry = listed.rstrip(b"\0").partition(b"\t")[0].split()
        if len(entry) != 3 or entry[1] != b"blob" or entry[0] == b"120000":
            return None
        data = self._git.output("cat-file", "blob", entry[2].decode())
        return FileState(data, EXECUTABLE if entry[0] == b"100755" else REGULAR)

    @property
    def paths(self) -> list[str]:
        """Every path of the tree, sorted."""
        if self._paths is None:
            names = self._git.output("ls-tree", "-r", "-z", "--name-only", self.commit)
            self._paths = names.decode("utf-8", "surrogateescape").split("\0")[:-1]
        return self._paths

    def find_name(self, name: str, near: str = "") -> Sequence[str]:
        """Return the paths whose last component is ``name``; see ``Finder``."""
        found = [path for path in self.paths if path.rpartition("/")[2] == name]
        return sorted(found, key=lambda path: (not path.startswith(near), path))


def find_renames(git: CleanGit, before: str, after: str) -> Mapping[str, str]:
    """What git takes for renames between two trees: old path to new path.

    ``before`` and ``after`` are anything that names a tree. git's own measure: half
    of the lines are the same.
    """
    answer = git.output(
        "diff-tree", "-r", "-M", "-l0", "-z", "--diff-filter=R", "--name-status",
        "--no-commit-id", before, after,
    )  # fmt: skip
    words = answer.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return {words[i + 1]: words[i + 2] for i in range(0, len(words) - 2, 3)}


def store_folder(folder: Path) -> str:
    """The id of a tree object with the regular files of any folder, without ``.git``.

    Raises EnvironmentProblem when a file cannot be read.
    """
    store = open_store()
    if not folder.is_dir():
        raise EnvironmentProblem(f"{folder}: no such folder")
    index = cache_folder(FOLDER) / f"index-of-a-tree-{abs(hash(folder.resolve()))}"
    env = {
        "GIT_DIR": str(store.folder),
        "GIT_WORK_TREE": str(folder.resolve()),
        "GIT_INDEX_FILE": str(index),
    }
    try:
        store.output("add", "-A", "-f", "--", str(folder.resolve()), env=env)
        return store.text("write-tree", env=env)
    finally:
        index.unlink(missing_ok=True)
