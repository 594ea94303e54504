"""A project with a release, and another that only the package index has."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from kit_project import FILES, commit, make_project, new_tree
from local_index import make_sdist
from packaging.version import Version

from patchkit.index_versions import IndexedSdist
from patchkit.port import PortResult, port
from patchkit.refresh import plan_refresh, write_refresh
from patchkit.releases import Releases, load_releases
from patchkit.work_tree import open_work_tree

A = FILES["vllm/a.py"]
B = FILES["vllm/b.py"]
PYPROJECT = b'[build-system]\nrequires = ["torch == 2.99.0", "x"]\n[tool.ruff]\n'


MOVED = {"vllm/a.py": b"head = 0\n" * 3 + A, "pyproject.toml": PYPROJECT}
CONFLICT = {**MOVED, "vllm/b.py": B.replace(b"b20 = 20\n", b"b20 = 99\n")}


class Project:
    """A project with release 1 and its series; release 2 is on the index alone."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self.listed: list[IndexedSdist] = []
        releases = make_project(folder, patch)
        release = releases.release["1"]
        tree = folder / "build" / "one"
        new_tree(release, tree)
        commit(tree, "New file", {"vllm/new.py": b"n = 1\n"})
        edited = A.replace(b"a20 = 20\n", b"a20 = 20\none = 1\n")
        commit(tree, "One", {"vllm/a.py": edited})
        commit(tree, "Two", {"vllm/b.py": B.replace(b"b20 = 20\n", b"b20 = 21\n")})
        write_refresh(plan_refresh(releases, open_work_tree(tree)))
        ledger = release.path / "ledger.toml"
        for key in ("why", "tested", "upstream", "remove_when"):
            text = ledger.read_text().replace(f'{key} = ""', f'{key} = "old {key}"')
            ledger.write_text(text)
        sdist = release.sdist[0]
        (folder / "releases.toml").write_text(
            '# The releases.\n\n[release."1"]\nversions = ["1.0"]\n'
            'directory = "patches/v1"\npython = "3.12"\ntorch = "2"\n\n'
            f'[[release."1".sdist]]\nversion = "1.0"\nfile = "{sdist.file}"\n'
            f'sha256 = "{sdist.sha256}"\n\n[[release."1".image]]\nname = "some/image"\n'
            'tag = "v1.0"\npackage_root = "/x"\n'
        )

    @property
    def releases(self) -> Releases:
        return load_releases(self.folder / "releases.toml")

    def publish(self, version: str, files: dict[str, bytes]) -> None:
        """Put an sdist of ``version`` where the index lists it."""
        name = f"vllm-{version}.tar.gz"
        data = make_sdist({**FILES, **files}, top=f"vllm-{version}")
        (self.folder / "cache" / "vllm-patchkit" / "sdists" / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        listed = [IndexedSdist(Version(version), name, digest)]
        self.patch.setattr("patchkit.port.list_indexed", lambda: listed)
        self.patch.setattr("patchkit.index_versions.list_indexed", lambda: listed)

    def port(self, *, keep_going: bool = False) -> PortResult:
        return port(self.releases, "1", "2.0", keep_going=keep_going)

    @property
    def tree(self) -> Path:
        return self.folder / "build" / "vllm-2.0-capture"

    def files(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in [
                *self.folder.glob("patches/*/*"),
                self.folder / "releases.toml",
            ]
        }
