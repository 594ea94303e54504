"""Holds what patched files use of torch_npu against the contracts of its wheels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from patchkit.contract_lookup import Lookup, Missing
from patchkit.findings import Finding
from patchkit.kept_uses import kept_uses
from patchkit.npu_uses import Use
from patchkit.plan_types import Origin, PlannedFile
from patchkit.rules import RULES
from patchkit.signatures import Signature
from patchkit.virtual_tree import split_lines
from patchkit.wheel_contract import Contract

# Not any text "npu": most are names of devices, and parsing takes time.
_MENTION = re.compile(
    rb"torch_npu|\.(?:npu|atb)\b|(?:npu|atb)::|from torch(?:\.ops)? import"
    rb"|getattr\([^()]*,\s*[\"'](?:npu|atb)[\"']"
)


@dataclass(frozen=True)
class PatchUse:
    """A use, and the line of the patch that adds it."""

    use: Use
    origin: Origin


@dataclass
class ContractCheck:
    """The findings, and how many names were looked up in how many wheels."""

    findings: list[Finding] = field(default_factory=list)
    names: int = 0
    calls: int = 0
    wheels: int = 0

    def __str__(self) -> str:
        return (
            f"{self.names} names of torch_npu, {self.calls} ways to call them, "
            f"held against {self.wheels} wheels"
        )


def patch_uses(files: Iterable[PlannedFile]) -> list[PatchUse]:
    """What lines that patches add use of torch_npu, each once.

    Files that are no Python are left out: other rules are for those.
    """
    found: dict[PatchUse, None] = {}
    for file in files:
        if file.after is None or not file.path.endswith(".py"):
            continue
        lines = split_lines(file.after.data)
        added = b"".join(
            line
            for line, origin in zip(lines, file.origins, strict=True)
            if origin is not None
        )
        # A line may use what a line of the release's own names.
        if not added or not _MENTION.search(file.after.data):
            continue
        try:
            uses = kept_uses(file.after.data)
        except (SyntaxError, ValueError):
            continue
        for use in uses:
            origins = file.origins[use.first - 1 : use.last]
            origin = next((each for each in origins if each is not None), None)
            if origin is not None:
                # Line numbers differ between the images of a file that prefixes leave.
                plain = replace(use, first=0, last=0)
                found[PatchUse(plain, origin)] = None
    return list(found)


def check_contract(
    uses: Sequence[PatchUse], contracts: Sequence[Contract]
) -> ContractCheck:
    """One finding for each fault of each use, with the wheels that it is about."""
    lookups = [(contract.label, Lookup(contract)) for contract in contracts]
    faults: dict[tuple[Origin, str, str], list[str]] = {}
    names = {each.use.name for each in uses}
    for each in uses:
        for label, lookup in lookups:
            for code, words in _faults(each.use, lookup, names):
                faults.setdefault((each.origin, code, words), []).append(label)
    findings = [
        Finding(
            *origin,
            code,
            f"{words} in {_joined(labels)}" if code != "N603" else words,
            RULES[code].severity,
            detail=tuple(labels) if code == "N603" else (),
        )
        for (origin, code, words), labels in faults.items()
    ]
    findings.sort(key=lambda found: (found.path, found.line, found.code))
    sure = [each.use for each in uses if not each.use.doubt]
    for lookup in [lookup for _, lookup in lookups[:1]]:
        sure = [use for use in sure if not lookup.is_foreign(use.name)]
    return ContractCheck(
        findings,
        names=len({use.name for use in sure}),
        calls=len({(use.name, use.call) for use in sure if use.call is not None}),
        wheels=len(contracts),
    )


def _faults(use: Use, lookup: Lookup, names: set[str]) -> list[tuple[str, str]]:
    """Rules and words. What a missing name of ``names`` leads to is left out."""
    if use.doubt:
        return [("N603", f"{use.name} cannot be checked: {use.doubt}")]
    found = lookup.find(use.name)
    if isinstance(found, Missing):
        whole = f"{found.owner}.{found.name}"
        if whole != use.name and whole in names:
            return []
        asked = f" (for {use.name})" if whole != use.name else ""
        if use.is_ready:
            return [("N603", f"no {whole}{asked}, which the source is ready for")]
        return [("N601", f"no {whole}{asked}")]
    if not found.known:
        return [("N603", f"{use.name} cannot be checked: {found.reason}")]
    return _call_faults(use, found.signatures)


def _call_faults(use: Use, signatures: Sequence[Signature]) -> list[tuple[str, str]]:
    call = use.call
    if call is None:
        return []
    if signatures:
        # Of several overloads, the nearest one tells what is wrong.
        misfits = min((each.misfits(call) for each in signatures), key=len)
        name = use.name.removeprefix("torch_npu.")
        return [("N602", f"{name} {words}") for words in misfits]
    if call.keywords or call.maybe:
        reason = "the wheel does not tell what it takes"
        return [("N603", f"keywords of {use.name} cannot be checked: {reason}")]
    return []


def _joined(labels: list[str]) -> str:
    """``torch_npu 2.10.0 x86_64, aarch64``: each version once."""
    by_version: dict[str, list[str]] = {}
    for label in labels:
        version, _, architecture = label.rpartition(" ")
        by_version.setdefault(version, []).append(architecture)
    return "; ".join(
        f"{version} {', '.join(architectures)}"
        for version, architectures in by_version.items()
    )
