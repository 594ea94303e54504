"""A release's series: its patches in order, their headers, their ledger, a digest."""

from __future__ import annotations

import difflib
import hashlib
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchkit.diff_model import Patch
from patchkit.errors import UsageError
from patchkit.findings import Finding
from patchkit.parse import ParseResult, read_patch
from patchkit.releases import FLAVOURS, PROJECT, Release

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEDGER = "ledger.toml"
LEDGER_KEYS = ("why", "tested", "upstream", "remove_when")
_NUMBER = re.compile(r"(\d{4})-[\w.-]+\.patch")


@dataclass(frozen=True)
class Series:
    """The patches of one flavour of a release, in order.

    ``patches`` lacks those whose form is refused; then ``findings`` has errors.
    ``digest`` identifies the patch set, see ``patch_set_digest``.
    """

    release: Release
    flavour: str
    patches: tuple[Patch, ...]
    findings: tuple[Finding, ...]
    digest: str

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that the series reads or writes, sorted."""
        paths = {change.path for patch in self.patches for change in patch.files}
        for patch in self.patches:
            paths |= {c.old_path for c in patch.files if c.old_path is not None}
        return tuple(sorted(paths))


def load_series(release: Release, flavour: str = "capture") -> Series:
    """Read a release's patches. Faults of content are findings.

    Raises UsageError when the flavour or its series file does not exist.
    """
    if flavour not in FLAVOURS:
        raise UsageError(f"no flavour {flavour!r}; there are: {', '.join(FLAVOURS)}")
    files = [release.path / "series"]
    if flavour == "ascend":
        files.append(release.path / "series-ascend")
    findings: list[Finding] = []
    paths: list[Path] = []
    for file in files:
        if not file.is_file():
            raise UsageError(
                f"{_shown(file)}: no such file, so release {release.name} has no "
                f"flavour {flavour!r}",
                hint=f"it has: {', '.join(release.flavours) or 'none'}",
            )
        _read_series_file(file, paths, findings)
    results = [read_patch(path, _shown(path)) for path in paths]
    for result in results:
        findings += result.findings
        findings += _header_findings(result)
    findings += _unlisted(release.path, paths)
    findings += _ledger_findings(paths)
    patches = tuple(result.patch for result in results if result.patch is not None)
    digest = patch_set_digest([(path.name, path.read_bytes()) for path in paths])
    return Series(release, flavour, patches, tuple(findings), digest)


def patch_set_digest(files: list[tuple[str, bytes]]) -> str:
    """``sha256:…`` over the patches in order, each as its name and its own SHA-256.

    The text hashed is one line a patch, ``<64 hex digits>  <file name>\\n``, which is
    what ``sha256sum`` prints for the files in series order.
    """
    text = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files
    )
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _shown(path: Path) -> str:
    """A path relative to the project where it lies in it."""
    try:
        return path.resolve().relative_to(PROJECT).as_posix()
    except ValueError:
        return str(path)


def _read_series_file(file: Path, paths: list[Path], findings: list[Finding]) -> None:
    name = _shown(file)
    root = file.parent.parent.resolve()
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise UsageError(f"{name}: not UTF-8") from None
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    for number, raw in enumerate(lines, 1):
        entry = raw.partition("#")[0].strip()
        if not entry:
            continue
        # A NUL is the one byte that no path may hold; resolve() would raise on it.
        path = (file.parent / entry.replace("\0", "?")).resolve()
        fault = ""
        if not entry.endswith(".patch") or len(entry.split()) > 1:
            fault = "wanted one *.patch file a line"
        elif Path(entry).is_absolute() or root not in path.parents:
            fault = "lies outside the project's patches"
        elif not path.is_file():
            fault = "no such file"
        if fault:
            findings.append(Finding(name, number, "S501", f"{entry}: {fault}"))
        elif path in paths:
            findings.append(Finding(name, number, "S502", f"{entry} stands twice"))
        else:
            if fault := _number_fault(path, paths):
                findings.append(Finding(name, number, "S508", f"{entry}: {fault}"))
            paths.append(path)


def _number_fault(path: Path, before: list[Path]) -> str:
    """What is wrong with a patch's number, given the patches ahead of it.

    Only patches of one folder are compared: a line may name another release's.
    """
    number = _NUMBER.fullmatch(path.name)
    if number is None:
        return "a patch is named NNNN-what-it-does.patch"
    for other in before:
        ahead = _NUMBER.fullmatch(other.name)
        if other.parent == path.parent and ahead and ahead[1] >= number[1]:
            return f"stands after {other.name}"
    return ""


def _header_findings(result: ParseResult) -> list[Finding]:
    """The rules that hold for a patch of a series and not for any diff."""
    patch = result.patch
    if patch is None:
        return []
    findings = []
    header = patch.header.decode("utf-8", "replace").split("\n")
    missing = []
    if not header[0].startswith("Subject: ") or not header[0][9:].strip():
        missing.append("a first line 'Subject: …'")
    if not any(line.startswith("Upstream: ") and line[10:].strip() for line in header):
        missing.append("a line 'Upstream: …'")
    said = ("Subject:", "Upstream:", "---")
    if not any(line.strip() and not line.startswith(said) for line in header):
        missing.append("what it does")
    if missing:
        findings.append(
            Finding(patch.name, 1, "S504", f"the header lacks {', '.join(missing)}")
        )
    for change in patch.files:
        blobs = (change.old_blob, change.new_blob)
        short = any(blob is not None and len(blob) != 40 for blob in blobs)
        if short or (change.hunks and blobs == (None, None)):
            findings.append(
                Finding(
                    patch.name,
                    change.line,
                    "S506",
                    f"{change.path}: no full blob ids on the index line",
                    hint="write the patch with: git diff --full-index",
                )
            )
    findings += [
        replace(found, code="S507", severity="error")
        for found in result.findings
        if found.code == "H105"
    ]
    return findings


def _unlisted(folder: Path, paths: list[Path]) -> list[Finding]:
    listed = set(paths)
    for file in folder.glob("series*"):
        more: list[Path] = []
        _read_series_file(file, more, [])
        listed |= set(more)
    return [
        Finding(_shown(path), 0, "S503", "in no series of its folder", "warning")
        for path in sorted(folder.glob("*.patch"))
        if path.resolve() not in listed
    ]


def _ledger_findings(paths: list[Path]) -> list[Finding]:
    """Each patch has an entry, with every key, in the ledger of its own folder."""
    findings: list[Finding] = []
    ledgers: dict[Path, dict[str, Any]] = {}
    for path in paths:
        file = path.parent / LEDGER
        if file not in ledgers:
            ledgers[file] = _read_ledger(file, findings)
        entry = ledgers[file].get(path.name)
        if not isinstance(entry, dict):
            findings.append(
                Finding(_shown(file), 0, "S505", f"no entry for {path.name}")
            )
            continue
        findings += [
            Finding(_shown(file), 0, "S505", f'"{path.name}".{key} is missing')
            for key in LEDGER_KEYS
            if not isinstance(entry.get(key), str) or not entry[key].strip()
        ]
        for key in sorted(set(entry) - set(LEDGER_KEYS)):
            near = difflib.get_close_matches(key, LEDGER_KEYS, n=1) or LEDGER_KEYS
            message = f'"{path.name}".{key}: unknown key; there is {near[0]}'
            findings.append(Finding(_shown(file), 0, "S505", message))
    for file, ledger in ledgers.items():
        findings += [
            Finding(_shown(file), 0, "S505", f"{name}: no such patch in the folder")
            for name in ledger
            if not (file.parent / name).is_file()
        ]
    return findings


def _read_ledger(file: Path, findings: list[Finding]) -> dict[str, Any]:
    try:
        ledger: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        findings.append(Finding(_shown(file), 0, "S505", "there is no ledger"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        findings.append(Finding(_shown(file), 0, "S505", f"no TOML: {error}"))
    except OSError as error:
        findings.append(Finding(_shown(file), 0, "S505", str(error.strerror)))
    else:
        return ledger
    return {}
