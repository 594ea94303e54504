"""The pinned wheels themselves, and what each Ascend series uses of them."""

from __future__ import annotations

import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from small_disk import Need

from patchkit.check_contract import PatchUse, check_contract, patch_uses
from patchkit.contract_lookup import Found, Lookup
from patchkit.errors import EnvironmentProblem
from patchkit.plan import make_plan
from patchkit.releases import Release, load_releases
from patchkit.series import load_series
from patchkit.signatures import schema_signature
from patchkit.torch_npu_pins import Wheel, load_torch_npu_pins
from patchkit.upstream import open_source
from patchkit.wheel_contract import NAMESPACES, Contract, load_contract, read_wheel
from patchkit.wheel_modules import is_read

RELEASES = [
    release
    for release in load_releases().release.values()
    if "ascend" in release.flavours
]
WHEELS = load_torch_npu_pins().wheels


@pytest.fixture(scope="module")
def contracts(need: Need) -> dict[str, Contract]:
    try:
        return {wheel.label: load_contract(wheel) for wheel in WHEELS}
    except EnvironmentProblem as error:
        need(False, f"no pinned wheel of torch_npu: {error}")
        raise


@pytest.fixture(scope="module")
def uses_of(need: Need) -> dict[str, list[PatchUse]]:
    """What every prefix of each release's series uses."""
    found = {}
    for release in RELEASES:
        series = load_series(release, "ascend")
        try:
            source = open_source(release, paths=series.paths)
        except EnvironmentProblem as error:
            need(False, f"no pinned source: {error}")
        uses: dict[PatchUse, None] = {}
        for count in range(1, len(series.patches) + 1):
            plan = make_plan(series.patches[:count], source, policy="exact")
            uses |= dict.fromkeys(patch_uses(plan.changes))
        found[release.name] = list(uses)
    return found


@pytest.fixture(scope="module")
def uses(uses_of: dict[str, list[PatchUse]]) -> list[PatchUse]:
    """Those of all releases, each once."""
    return list({each.use: each for uses in uses_of.values() for each in uses}.values())


def copied(contract: Contract) -> Contract:
    return Contract.from_json(contract.to_json())


def without(contract: Contract, name: str) -> Contract:
    """A copy in which nothing of a library or a module has this name."""
    copy = copied(contract)
    for operators in copy.operators.values():
        operators.pop(name, None)
        for each in operators:
            operators[each] = [s for s in operators[each] if f".{name}(" not in s]
    copy.bound.discard(name)
    for module in [each for each in copy.modules if each.endswith(f".{name}")]:
        del copy.modules[module]
    copy.files -= {each for each in copy.files if each.endswith(f".{name}")}
    for each in copy.modules.values():
        each.names.pop(name, None)
        for kind, *rest in each.names.values():
            if kind == "class":
                rest[1].pop(name, None)
    return copy


def renamed(contract: Contract, keyword: str) -> Contract:
    """A copy in which no operator or function has this parameter, but another."""
    copy = copied(contract)
    word = re.compile(rf"\b{keyword}\b")

    def changed(text: str) -> str:
        return word.sub(f"{keyword}_of_old", text)

    for operators in copy.operators.values():
        for name, schemas in operators.items():
            parts = [schema.partition("(") for schema in schemas]
            operators[name] = [f"{head}({changed(tail)}" for head, _, tail in parts]
    for module in copy.modules.values():
        for kind, *rest in module.names.values():
            entries = {"def": [rest]}.get(kind, [])
            if kind == "class":
                entries = [each for each in rest[1].values() if each[0] != "value"]
            for entry in entries:
                place = 1 if kind == "class" else 0
                entry[place] = changed(entry[place])
        for name, entry in module.names.items():
            if entry[0] == "def":
                module.names[name] = ["def", changed(entry[1]), entry[2]]
    return copy


def test_every_wheel_is_read(contracts: dict[str, Contract]) -> None:
    """Both architectures have the same operators, and each schema can be parsed."""
    assert len(contracts) == 6
    for label, contract in contracts.items():
        schemas = [
            schema
            for operators in contract.operators.values()
            for each in operators.values()
            for schema in each
        ]
        assert len(schemas) > 430, label
        for schema in schemas:
            schema_signature(schema)
        other = label.replace("x86_64", "aarch64")
        assert contract.operators == contracts[other].operators


@pytest.mark.parametrize(
    "name",
    [
        *(f"torch.npu.Stream().{name}" for name in ("npu_stream", "device", "query")),
        *("torch.npu.Stream().stream_id", "torch.npu.Event().npu_event"),
        *("torch_npu.float8_e8m0fnu", "torch_npu.atb", "torch_npu.npu_format_cast"),
        *("torch_npu.npu_rms_norm().x", "torch.npu.utils.get_cann_version"),
    ],
)
def test_names_that_a_device_has(name: str, contracts: dict[str, Contract]) -> None:
    """No series uses them all; `dir` of the real torch_npu has them."""
    for label, contract in contracts.items():
        assert isinstance(Lookup(contract).find(name), Found), label


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_the_series_fits(
    release: Release,
    uses_of: dict[str, list[PatchUse]],
    contracts: dict[str, Contract],
) -> None:
    """Nothing is missing, and nothing is left unchecked."""
    uses = uses_of[release.name]
    wheels = load_torch_npu_pins().wheels_for(release)
    check = check_contract(uses, [contracts[wheel.label] for wheel in wheels])
    assert [str(finding) for finding in check.findings] == []
    assert check.names > 50
    assert check.calls > 30
    assert all(use.origin[0].endswith(".patch") and use.origin[1] for use in uses)


def test_warm_it_costs_less_than_a_second(
    uses: list[PatchUse], contracts: dict[str, Contract]
) -> None:
    assert contracts
    times = []
    for _ in range(3):
        began = time.process_time()
        check_contract(uses, [load_contract(wheel, offline=True) for wheel in WHEELS])
        times.append(time.process_time() - began)
    assert min(times) < 0.5


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.label)
def test_each_name_is_missed(
    wheel: Wheel, uses: list[PatchUse], contracts: dict[str, Contract]
) -> None:
    """Every name that is used, operators among them, removed by itself."""
    contract = contracts[wheel.label]
    lookup = Lookup(contract)
    names = {
        each.use.name.rpartition(".")[2]
        for each in uses
        if not lookup.is_foreign(each.use.name)
    }
    names -= {"npu", "__init__"}
    assert {"npu_swiglu", "_npu_reshape_and_cache", "out", "wait", "CPU"} <= names
    for name in names:
        found = check_contract(uses, [without(contract, name)]).findings
        missed = [each for each in found if each.code == "N601"]
        assert any(f".{name}" in each.message for each in missed), name
        assert all(wheel.label in each.message for each in missed)


def test_each_keyword_is_missed(
    uses: list[PatchUse], contracts: dict[str, Contract]
) -> None:
    pairs = {
        (each.use.name, keyword)
        for each in uses
        if each.use.call is not None
        for keyword in (*each.use.call.keywords, *each.use.call.maybe)
    }
    assert ("torch_npu.npu_swiglu", "dim") in pairs
    assert ("torch_npu.npu_fused_infer_attention_score.out", "pre_tokens") in pairs
    contract = contracts["torch_npu 2.11.0.post3 aarch64"]
    lookup = Lookup(contract)
    for keyword in {keyword for _, keyword in pairs}:
        found = check_contract(uses, [renamed(contract, keyword)]).findings
        said = " ".join(each.message for each in found if each.code == "N602")
        for name, other in pairs:
            is_any = all(s.more_keywords for s in lookup.find(name).signatures)
            if other == keyword and not is_any:
                short = name.removeprefix("torch_npu.")
                assert f"{short} has no keyword {keyword} in {contract.label}" in said


@pytest.fixture
def changed_wheel(
    contracts: dict[str, Contract], tmp_path: Path
) -> Callable[[dict[bytes, bytes]], Path]:
    """Copies what is read of a pinned wheel, with other bytes in its libraries."""
    wheel = next(each for each in WHEELS if each.label == next(iter(contracts)))

    def copy(changes: dict[bytes, bytes]) -> Path:
        path = tmp_path / wheel.file
        left = dict(changes)
        with zipfile.ZipFile(wheel.fetch()) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                if name in NAMESPACES:
                    data = old.read(name)
                    for before, after in changes.items():
                        if data.count(before) == 1:
                            left.pop(before)
                            data = data.replace(before, after)
                    new.writestr(name, data)
                elif is_read(name) or name.endswith("/_atb_ops.py"):
                    new.writestr(name, old.read(name))
        assert not left
        return path

    return copy


def test_operators_removed_from_a_wheel(
    uses: list[PatchUse],
    contracts: dict[str, Contract],
    changed_wheel: Callable[[dict[bytes, bytes]], Path],
) -> None:
    """Bytes of the libraries themselves: an operator, one of ATB, and a keyword."""
    path = changed_wheel(
        {
            b"npu_swiglu(Tensor input": b"npu_swigly(Tensor input",
            b"_npu_reshape_and_cache(Tensor": b"_npu_reshape_and_cach3(Tensor",
            b"str rotary_mode='half', Tensor? rotate=": b"str rotary_made='half', "
            b"Tensor? rotate=",
        }
    )
    label = next(iter(contracts))
    found = check_contract(uses, [read_wheel(path, label)]).findings
    assert {(each.code, each.message) for each in found} == {
        ("N601", f"no torch_npu.npu_swiglu in {label}"),
        ("N601", f"no torch_npu._npu_reshape_and_cache in {label}"),
        ("N602", f"npu_rotary_mul has no keyword rotary_mode in {label}"),
    }
    # Their numbers are a series' own.
    assert {Path(each.path).stem.partition("-")[2] for each in found} == {
        "npu-operators",
        "npu-attention",
    }


def test_a_truncated_wheel(tmp_path: Path, contracts: dict[str, Contract]) -> None:
    assert contracts
    path = tmp_path / WHEELS[0].file
    data = WHEELS[0].fetch().read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(EnvironmentProblem, match="no wheel of torch_npu"):
        read_wheel(path, WHEELS[0].label)
