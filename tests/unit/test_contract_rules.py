"""Each N rule on its samples; what is read of a wheel; how uses are found."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from small_wheel import ATB, FILE, FILES, LIBRARY, library_with_table, make_wheel

from patchkit import pip_settings, verify, wheel_contract
from patchkit.check_contract import PatchUse, check_contract, patch_uses
from patchkit.contract_lookup import Found, Lookup, Missing
from patchkit.elf_texts import pointed_names
from patchkit.errors import EnvironmentProblem, UsageError
from patchkit.file_state import FileState
from patchkit.findings import Finding
from patchkit.library_texts import read_library
from patchkit.npu_uses import Use, find_uses
from patchkit.parse import parse_patch
from patchkit.plan import make_plan
from patchkit.plan_types import PlannedFile
from patchkit.releases import PROJECT, load_releases
from patchkit.rules import contract as rules
from patchkit.signatures import CallShape, python_signature, schema_signature
from patchkit.torch_npu_pins import Wheel, load_torch_npu_pins
from patchkit.tree_source import TreeSource
from patchkit.wheel_contract import Contract, load_contract, read_wheel

SAMPLES = Path(__file__).parents[1] / "diffs"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Contract:
    return read_wheel(
        make_wheel(tmp_path_factory.mktemp("wheel")), "torch_npu 9.0 x86_64"
    )


def images(patch: Path, tree: Path) -> tuple[PlannedFile, ...]:
    parsed = parse_patch(patch.read_bytes(), patch.name).patch
    assert parsed is not None
    return make_plan([parsed], TreeSource(tree), policy="exact").changes


def judged(patch: Path, tree: Path, contract: Contract) -> list[Finding]:
    return check_contract(patch_uses(images(patch, tree)), [contract]).findings


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.id)
def test_rules(
    rule: rules.Rule,
    small: Contract,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = SAMPLES / f"{rule.id}-{rule.name}"
    found: dict[str, list[Finding]] = {}
    for kind in ("good", "bad"):
        if rule.id != "N604":
            found[kind] = judged(place / f"{kind}.diff", tmp_path, small)
            continue
        pins = load_torch_npu_pins(place / f"{kind}.toml")
        monkeypatch.setattr(
            "patchkit.torch_npu_pins.load_torch_npu_pins", lambda p=pins: p
        )
        monkeypatch.setattr(
            "patchkit.wheel_contract.load_contract", lambda *_, **__: small
        )
        report = verify.Report()
        changes = images(SAMPLES / "N601-torch-npu-name" / "good.diff", tmp_path)
        verify._judge_contract(changes, load_releases().find("0.25"), True, report)
        found[kind] = report.findings
    assert found["good"] == []
    (finding,) = found["bad"]
    assert (finding.code, finding.severity) == (rule.id, rule.severity)
    assert finding.line > 0


def test_what_a_finding_says(small: Contract, tmp_path: Path) -> None:
    bad = {
        rule.id: SAMPLES / f"{rule.id}-{rule.name}" / "bad.diff" for rule in rules.RULES
    }
    said = [str(judged(bad[code], tmp_path, small)[0]) for code in ("N601", "N602")]
    assert said == [
        "bad.diff:16: N601 no torch_npu.npu.synchronise in torch_npu 9.0 x86_64",
        "bad.diff:15: N602 npu_scale.out has no keyword scale in torch_npu 9.0 x86_64",
    ]
    (unknown,) = judged(bad["N603"], tmp_path, small)
    assert "getattr(torch.npu, name) cannot be checked" in unknown.message


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("torch_npu.npu_scale", True),
        ("torch.ops.npu.npu_scale.out", True),
        ("torch.ops.npu.npu_scale.default", True),
        ("torch_npu.npu_scale.into", False),
        ("torch.ops.atb.npu_scale", False),
        ("torch_npu._store", True),
        ("torch_npu.npu_scale().anything.of.a.tensor", True),
        ("torch.ops.npu._store", False),
        ("torch_npu._gone", False),
        ("torch.npu.Stream().wait", True),
        ("torch.npu.Other.best", True),
        ("torch.npu.Last().wait", True),
        ("torch.npu.current_stream().wait", True),
        ("torch.npu.utils.version", True),
        ("torch.npu.utils.versions", False),
        ("torch.npu.properties().free_memory", True),
        ("torch.npu.properties().total", False),
        ("torch_npu._C._Handle", True),
        ("torch_npu._C._Other", False),
        ("torch.npu.added", True),
        ("torch.npu.memory", True),
        ("torch.npu.Bound().native_handle", True),
        ("torch.npu.Bound().native_handles", False),
        ("torch_npu.npu_defined", True),
        ("torch.ops.npu.npu_other", False),
        ("torch_npu.float8_e4m3fn", True),
        ("torch_npu.float8_e5m2", False),
        ("torch_npu.atb._store", True),
        ("torch_npu.atb", True),
        ("torch_npu.atbs", False),
        ("torch.ops.npu", True),
        ("torch_npu.atb._other", False),
        ("torch_npu.nothing", False),
    ],
)
def test_names(name: str, there: bool, small: Contract) -> None:
    found = Lookup(small).find(name)
    assert isinstance(found, Found if there else Missing)
    if there:
        assert isinstance(found, Found)
        assert found.known, found.reason


@pytest.mark.parametrize(
    "name",
    [
        "torch.npu.Stream().record",
        "torch_npu.contrib.hidden",
        "torch.npu.utils.given",
        "torch_npu.npu_odd",
        "torch.npu.synchronize().x",
    ],
)
def test_what_the_wheel_does_not_tell(name: str, small: Contract) -> None:
    found = Lookup(small).find(name)
    assert isinstance(found, Found)
    assert not found.known
    assert found.reason


def test_texts_of_a_library() -> None:
    schemas, names = read_library(FILES[ATB])
    assert schemas == {"_store(Tensor x, int[2] y) -> ()"}
    assert names == {"_store"}
    assert read_library(
        b"\0no(Tensor x) schema\0 (x) -> y\0_ZN3c10E\0cut(Tensor x) -> ()"
    ) == (
        set(),
        set(),
    )


@pytest.mark.parametrize(
    ("machine", "kind"), [(62, 8), (183, 1027)], ids=["x86_64", "aarch64"]
)
def test_a_text_that_is_the_end_of_another(machine: int, kind: int) -> None:
    """A table of C points to it; another kind of relocation is about a symbol."""
    text = b"get_stream_id\0not a name\0wait_all\0"
    library = library_with_table(text, {4: kind, 14: kind, 25: 1, 999: kind}, machine)
    assert pointed_names(library) == {"stream_id"}
    assert "stream_id" in read_library(library)[1]
    for length in (0, 50, 80, len(library) - 9):
        assert pointed_names(library[:length]) == set()
    # An i386's, where the numbers of relocations mean others.
    other = library_with_table(text, {4: kind}, 3)
    assert pointed_names(other) == set()


def test_schemas() -> None:
    found = schema_signature(
        "op.x(Tensor(a!) x, int[2] y=[1,2], str z='a, (b', *, Tensor? w=None, float e)"
        " -> (Tensor, Tensor)"
    )
    assert found.by_place == ("x", "y", "z")
    assert found.by_name == ("w", "e")
    assert found.required == {"x", "e"}
    for wrong in ("op(Tensor x)", "op(Tensor x", "op(Tensor) -> ()"):
        with pytest.raises(ValueError, match="schema"):
            schema_signature(wrong)


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (CallShape(1, ("c",)), []),
        (CallShape(2, ("c",)), []),
        (CallShape(3, ("c",)), ["takes 2 arguments by place, not 3"]),
        (CallShape(1, ("c", "d")), ["has no keyword d"]),
        (CallShape(1, ("c",), ("d",)), ["has no keyword d"]),
        (CallShape(1, ("a", "c")), ["gets a twice"]),
        (CallShape(1), ["wants c too"]),
        (CallShape(0, more_positional=True, more_keywords=True), []),
    ],
)
def test_calls(call: CallShape, wrong: list[str]) -> None:
    assert python_signature("self, a, b=1, *, c", bound=True).misfits(call) == wrong
    assert python_signature("a, b=1, *, c", bound=False).misfits(call) == wrong
    anything = python_signature("a, b=1, *args, c, **more", bound=False)
    assert anything.misfits(CallShape(5, ("c", "d"))) == []


USES = """
import functools
import torch
import torch_npu
from dataclasses import dataclass
from torch_npu.npu import Event as E, utils
from torch import npu

TABLE = {"a": "first", "b": "second"}
CODE = (
    "import torch_npu.npu.mstx;"
    "from torch_npu.profiler.profiler import analyse; analyse(1)"
)

@dataclass
class Kept:
    event: object
    name: str

class Graph(torch_npu.npu.NPUGraph):
    stream: "torch.npu.Stream | None" = None

    def __init__(self, given: torch.npu.Given):
        super().__init__()
        self.kept: list[Kept] = []
        self.given = given
        self.options = {"x": 1}
        if given:
            self.options = {"y": 1}

    def keep(self):
        event = torch.npu.ExternalEvent()
        self.kept.append(Kept(event, "x"))
        for each in self.kept:
            each.event.record(1)
        self.given.start()
        self.stream.wait_stream(E())
        self.inherited(1)
        self.keep()

    def arguments(self):
        return dict(p=1, **self.options)

    def call(self, q, **others):
        torch_npu.op(q, *q, r=1, **self.arguments())
        torch_npu.open(**others)
        with npu.stream(q) as s:
            s.leave()

def tables():
    own = torch.npu
    for name, value in TABLE.items():
        getattr(own, value)
    getattr(own, name + "x")
    return [functools.partial(own.later), torch.ops.npu.raw.default, utils.version]
"""


def test_uses() -> None:
    uses = find_uses(USES)
    named = {use.name for use in uses if not use.doubt}
    assert named >= {
        "torch_npu.npu.Event",
        "torch_npu.npu.ExternalEvent",
        "torch_npu.npu.ExternalEvent().record",
        "torch_npu.npu.Given",
        "torch_npu.npu.Given().start",
        "torch_npu.npu.NPUGraph",
        "torch_npu.npu.NPUGraph().__init__",
        "torch_npu.npu.NPUGraph().inherited",
        "torch_npu.npu.Stream",
        "torch_npu.npu.Stream().wait_stream",
        "torch_npu.npu.first",
        "torch_npu.npu.later",
        "torch_npu.npu.mstx",
        "torch_npu.npu.second",
        "torch_npu.npu.stream",
        "torch_npu.npu.stream().leave",
        "torch_npu.npu.utils.version",
        "torch_npu.op",
        "torch_npu.profiler.profiler.analyse",
        "torch.ops.npu.raw.default",
    }
    assert not [name for name in named if "keep" in name or "kept" in name]
    calls = {use.name: use.call for use in uses if use.call is not None}
    assert calls["torch_npu.op"] == CallShape(1, ("r", "p"), ("x", "y"), True)
    assert calls["torch_npu.profiler.profiler.analyse"] == CallShape(1)
    doubts = {use.name: use.doubt for use in uses if use.doubt}
    assert doubts == {
        "torch_npu.open": "** of unknown keywords",
        "getattr(own, name + 'x')": "the name is not a constant",
    }


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ("", "import torch\ngetattr(torch, 'npu').gone()\n"),
        ("", "import torch\n@torch.library.register_fake('npu::gone')\ndef f(): ...\n"),
        ("import torch_npu as t\n", "t.gone()\n"),
    ],
)
def test_lines_that_do_not_say_torch_npu(
    before: str, added: str, small: Contract
) -> None:
    data = (before + added).encode()
    old, new = before.count("\n"), added.count("\n")
    origins = (*[None] * old, *[("x.patch", n) for n in range(new)])
    file = PlannedFile("x.py", None, FileState(data), origins=origins)
    found = check_contract(patch_uses([file]), [small]).findings
    assert [each.code for each in found] == ["N601"]
    assert ".gone in torch_npu 9.0" in found[0].message


def test_a_missing_name_that_the_source_is_ready_for(small: Contract) -> None:
    use = Use("torch_npu.gone", 0, 0, is_ready=True)
    (found,) = check_contract([PatchUse(use, ("x.patch", 1))], [small]).findings
    assert (found.code, found.severity) == ("N603", "warning")
    assert found.message == "no torch_npu.gone, which the source is ready for"


def test_what_may_be_one_of_several() -> None:
    (doubt,) = [
        use
        for use in find_uses(
            "import torch\nx = torch.npu.Event()\nx = torch.npu.Stream()\nx.wait()\n"
        )
        if use.doubt
    ]
    assert (doubt.name, doubt.first) == ("x.wait", 4)


# Wheels that are not what they should be


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and a folder in place of an index."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(pip_settings, "_config_files", lambda _env: {})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "links").mkdir()
    return tmp_path / "links"


def pinned(path: Path) -> Wheel:
    return Wheel(file=FILE, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def test_read_once_and_again_when_damaged(alone: Path, tmp_path: Path) -> None:
    path = make_wheel(alone)
    wheel = pinned(path)
    assert wheel.label == "torch_npu 9.0 x86_64"
    first = load_contract(wheel)
    shutil.rmtree(alone)
    (tmp_path / "cache" / "vllm-patchkit" / "wheels" / FILE).rename(tmp_path / FILE)
    assert load_contract(wheel, offline=True) == first
    (kept,) = (tmp_path / "cache" / "vllm-patchkit" / "contracts").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"npu_scale", b"npu_scald"))
    with pytest.raises(EnvironmentProblem, match="--offline forbids"):
        load_contract(wheel, offline=True)
    (tmp_path / FILE).rename(tmp_path / "cache" / "vllm-patchkit" / "wheels" / FILE)
    assert load_contract(wheel, offline=True) == first


@pytest.mark.parametrize("kind", ["wrong digest", "truncated"])
def test_another_file_is_refused(kind: str, alone: Path, tmp_path: Path) -> None:
    path = make_wheel(alone)
    wheel = pinned(path)
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        path.write_bytes(make_wheel(tmp_path, {**FILES, "x": b""}).read_bytes())
    with pytest.raises(EnvironmentProblem, match="pinned is"):
        load_contract(wheel)
    assert not [*(tmp_path / "cache" / "vllm-patchkit" / "wheels").iterdir()]
    assert not [*(tmp_path / "cache" / "vllm-patchkit" / "contracts").iterdir()]


@pytest.mark.parametrize(
    "lacking", ["", LIBRARY, ATB, "torch_npu/op_plugin/atb/_atb_ops.py"]
)
def test_no_wheel_of_torch_npu(lacking: str, tmp_path: Path) -> None:
    """Pinned by mistake: a file that ends early, or one without a part."""
    path = make_wheel(tmp_path, {k: v for k, v in FILES.items() if k != lacking})
    if not lacking:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(EnvironmentProblem, match="no wheel of torch_npu"):
        read_wheel(path, "x")


@pytest.mark.parametrize(
    "source", ["a = " + "-" * 50000 + "1", "a = x" + ".y" * 3000, "a = 1\0"]
)
def test_a_source_that_cannot_be_parsed(source: str, tmp_path: Path) -> None:
    path = make_wheel(tmp_path, {**FILES, "torch_npu/x.py": source.encode()})
    with pytest.raises(EnvironmentProblem, match=r"no wheel of torch_npu: \w"):
        read_wheel(path, "x")


@pytest.mark.parametrize(
    ("place", "value"), [(8, 1), (10, 99)], ids=["encrypted", "compression"]
)
def test_a_wheel_that_zipfile_cannot_read(
    place: int, value: int, tmp_path: Path
) -> None:
    path = make_wheel(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.find(b"PK\x01\x02") + place] = value
    data[data.find(b"PK\x03\x04") + place - 2] = value
    path.write_bytes(data)
    with pytest.raises(EnvironmentProblem, match="no wheel of torch_npu"):
        read_wheel(path, "x")


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_damaged_bytes(compression: int, tmp_path: Path) -> None:
    path = tmp_path / FILE
    with zipfile.ZipFile(path, "w", compression) as wheel:
        for name, data in FILES.items():
            wheel.writestr(name, data)
    good = path.read_bytes()
    for place in range(0, len(good), 29):
        path.write_bytes(good[:place] + b"\xb5" + good[place + 1 :])
        with contextlib.suppress(EnvironmentProblem):
            read_wheel(path, "x")


def test_a_wheel_that_unpacks_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_wheel(tmp_path, {**FILES, LIBRARY: bytes(5000)})
    monkeypatch.setattr(wheel_contract, "_LARGEST", 5000)
    with pytest.raises(EnvironmentProblem, match=r"\d+ bytes to read, more than 5000"):
        read_wheel(path, "x")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('torch = "2.11.0"', "", "torch_npu.9.0.torch"),
        ("torch_npu-9.0-", "torch_npu-9.1-", "stands below 9.0"),
        ("00", "0", "sha256"),
        ("manylinux_2_28_x86_64", "win_amd64", "is for none of x86_64"),
        ("manylinux_2_28_x86_64", "manylinux_2_28_riscv64", "is for none of x86_64"),
        ("-cp311-cp311-manylinux_2_28_x86_64", "-x", "Invalid wheel filename"),
        ("torch_npu-9.0-", "torch_npu-9..0-", "x.toml: torch_npu.9.0.wheel.0: "),
        ('torch = "2.11.0"', 'torch = "2.11.0"\nextra = 1', "torch_npu.9.0.extra"),
        (
            'torch = "2.11.0"',
            'torch = "2.11.0"\nimages = ["0.99"]',
            "x.toml: Value error, images of 9.0: no release 0.99",
        ),
        ('[torch_npu."9.0"]', "[torch_npu", "no TOML"),
    ],
)
def test_pins_that_are_wrong(
    before: str, after: str, said: str, tmp_path: Path
) -> None:
    text = (SAMPLES / "N604-torch-npu-pin" / "good.toml").read_text()
    assert before in text
    (tmp_path / "x.toml").write_text(text.replace(before, after))
    with pytest.raises(UsageError, match=said):
        load_torch_npu_pins(tmp_path / "x.toml")


def test_one_file_pinned_twice(tmp_path: Path) -> None:
    """They would take turns in the cache, under one name."""
    text = (SAMPLES / "N604-torch-npu-pin" / "good.toml").read_text()
    table = text[text.index("[[") :].replace("00", "11")
    (tmp_path / "x.toml").write_text(text + table)
    with pytest.raises(UsageError, match=r"x\.toml: Value error, two .* the same file"):
        load_torch_npu_pins(tmp_path / "x.toml")


def test_no_file_of_pins() -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_torch_npu_pins(PROJECT / "none.toml")


def test_which_wheels_are_for_a_release() -> None:
    """Both architectures of each; those for its own torch, and those of the images."""
    pins, releases = load_torch_npu_pins(), load_releases()
    labels = [wheel.label for wheel in pins.wheels_for(releases.find("0.25"))]
    assert labels == [
        f"torch_npu {version} {architecture}"
        for version in ("2.10.0", "2.10.0.post2", "2.11.0.post3")
        for architecture in ("x86_64", "aarch64")
    ]
    newest = {wheel.version for wheel in pins.wheels_for(releases.find("0.24"))}
    assert newest == {"2.11.0.post3"}
    assert not pins.wheels_for(releases.find("0.33"))
