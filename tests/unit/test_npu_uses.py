"""What is found of torch_npu in sources that write it in other ways."""

from __future__ import annotations

import textwrap

import pytest

from patchkit.npu_uses import Use, find_uses
from patchkit.signatures import CallShape


def uses_of(source: str) -> list[Use]:
    start = "import functools\nimport torch\nimport torch_npu\nfrom torch import npu\n"
    return find_uses(start + textwrap.dedent(source))


STREAM = "torch_npu.npu.Stream().gone"
WAYS_TO_A_NAME = [
    ("a, b = 1, npu\nb.gone()", "torch_npu.npu.gone"),
    ("(1 and npu).gone", "torch_npu.npu.gone"),
    ("a = npu if x else None\na.gone", "torch_npu.npu.gone"),
    ("(a := npu).gone", "torch_npu.npu.gone"),
    ("def f(t=npu): t.gone", "torch_npu.npu.gone"),
    ("def f(*, t=npu): t.gone", "torch_npu.npu.gone"),
    ("class A:\n  t = npu\n  def f(self): self.t.gone", "torch_npu.npu.gone"),
    ("class A:\n  t = npu\n  x = t.gone", "torch_npu.npu.gone"),
    ("class A(metaclass=npu.gone): pass", "torch_npu.npu.gone"),
    ("def f():\n  global t\n  t = npu\ndef g(): t.gone", "torch_npu.npu.gone"),
    (
        "def f():\n  t = 1\n  def g():\n    nonlocal t\n    t = npu\n  t.gone",
        "torch_npu.npu.gone",
    ),
    ("hasattr(npu, 'gone')", "torch_npu.npu.gone"),
    ("setattr(npu, 'gone', 1)", "torch_npu.npu.gone"),
    ("m = importlib.import_module('torch_npu.npu')\nm.gone", "torch_npu.npu.gone"),
    ("importlib.import_module('torch_npu.gone')", "torch_npu.gone"),
    ("register_fake('npu::gone')", "torch.ops.npu.gone"),
    ("impl('atb::gone.out')", "torch.ops.atb.gone.out"),
    ("x = cast('npu.gone', y)", "torch_npu.npu.gone"),
    ("x = cast('npu.Stream', y)\nx.gone", STREAM),
    ("def f(x: Union[None, npu.Stream]): x.gone", STREAM),
    ("def f(x: dict[int, npu.Stream]): x[1].gone", STREAM),
    ("def f(x: dict[int, npu.Stream]):\n  for y in x.values(): y.gone", STREAM),
    ("def f(x: dict[int, npu.Stream]): x.get(1).gone", STREAM),
    ("def f(x: list[npu.Stream]): x[0].gone", STREAM),
    ("def f(x: list[npu.Stream]): x[1:].pop().gone", STREAM),
    ("for x in [npu.Stream()]: x.gone", STREAM),
    ("def f() -> npu.Stream: ...\nf().gone", STREAM),
    ("def f(): return npu.Stream()\nf().gone", STREAM),
    ("class A:\n  def f(self) -> npu.Stream: ...\nA().f().gone", STREAM),
    ("class A:\n  @property\n  def f(self) -> npu.Stream: ...\nA().f.gone", STREAM),
    ("class A(npu.Stream): pass\nclass B(A):\n  def f(self): self.gone", STREAM),
    (
        "def f():\n  import torch_npu as t\n  class A(t.npu.Stream):\n"
        "    def f(self): self.gone",
        STREAM,
    ),
    (
        "def f():\n  try: ...\n  except E:\n    class A(npu.Stream):\n"
        "      def f(self): self.gone",
        STREAM,
    ),
]


@pytest.mark.parametrize(("source", "name"), WAYS_TO_A_NAME)
def test_ways_to_a_name(source: str, name: str) -> None:
    assert name in {use.name for use in uses_of(source) if not use.doubt}


@pytest.mark.parametrize(
    "source",
    [
        "f(npu)",
        "f(x=torch_npu)",
        "vars(torch_npu)['gone']",
        "torch_npu.__dict__['gone']",
        "operator.attrgetter('gone')(npu)",
        "x = {'a': npu}",
        "x = [npu]",
        "x.y = npu",
        "x[0] = npu",
        "def f(): return npu",
        "f = lambda: npu",
        "f = lambda t=npu: t.gone",
        "[npu for x in y]",
        "f(*(torch_npu, 'gone'))",
        "match npu:\n  case x: x.gone",
    ],
)
def test_a_module_that_is_handed_on(source: str) -> None:
    """What is taken of it there is not seen, which is said."""
    assert [use.doubt for use in uses_of(source) if use.doubt]


@pytest.mark.parametrize(
    "source",
    [
        "def f(npu): npu.gone",
        "def f(*npu): npu.gone",
        "def f():\n  npu = 5\n  npu.gone",
        "def f():\n  a, npu = 1, 2\n  npu.gone",
        "def f():\n  for npu in x: npu.gone",
        "def f():\n  with x as npu: npu.gone",
        "def f():\n  import x as npu\n  npu.gone",
        "def f():\n  def npu(): ...\n  npu.gone",
        "def f():\n  try: ...\n  except E as npu: npu.gone",
        "lambda npu: npu.gone",
        "x = npu.Event()\nx.gone = 1\nx.gone",
        "class A(npu.Stream):\n  def gone(self): ...\nclass B(A): ...\nB().gone()",
        "def f(x: tuple[npu.Stream, int]): x[1].gone",
        "x = (npu.Stream(), 1)\nx[1].gone",
        "def f(x: list[npu.Stream]): x[1:].gone",
        "library.define('gone(Tensor x) -> Tensor')\ntorch.ops.npu.gone(x)",
        "custom_op('npu::gone', mutates_args=())\ntorch.ops.npu.gone.default(x)",
        "if torch_npu is None or not torch_npu: x()",
    ],
)
def test_what_is_not_of_torch_npu(source: str) -> None:
    found = uses_of(source)
    assert not [use for use in found if "gone" in use.name or use.doubt]


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: 'npu.Stream | torch.cuda.Stream'): x.gone",
        "x = npu.Event() if y else torch.cuda.Event()\nx.gone",
        "x = npu.Event()\nx = Other()\nx.gone",
    ],
)
def test_an_object_that_may_be_another(source: str) -> None:
    (doubt,) = [use for use in uses_of(source) if "gone" in use.name]
    assert doubt.doubt == "it may be one of several"


@pytest.mark.parametrize(
    ("source", "is_ready"),
    [
        ("npu.gone()", False),
        ("if hasattr(npu, 'gone'): npu.gone()", True),
        ("getattr(npu, 'gone', None)", True),
        ("getattr(npu, 'gone')", False),
        ("try: npu.gone()\nexcept AttributeError: ...", True),
        ("try: npu.gone()\nexcept RuntimeError: ...", False),
        ("try: npu.gone()\nexcept ImportError: ...", False),
        ("try: from torch.npu import gone\nexcept ImportError: x = 1\ngone()", True),
        ("try: ...\nexcept AttributeError: npu.gone()", False),
    ],
)
def test_sources_that_are_ready_for_a_missing_name(source: str, is_ready: bool) -> None:
    found = [use for use in uses_of(source) if use.name == "torch_npu.npu.gone"]
    assert found
    assert {use.is_ready for use in found} == {is_ready}


@pytest.mark.parametrize(
    ("source", "shape"),
    [
        (
            "functools.partial(torch_npu.op, 1, a=2)",
            CallShape(1, ("a",), (), more_positional=True, more_keywords=True),
        ),
        ("class A(torch_npu.op): ...\nA(1, a=2)", CallShape(1, ("a",))),
        ("def f():\n  o = {'a': 1}\n  torch_npu.op(**o)", CallShape(0, ("a",))),
    ],
)
def test_calls(source: str, shape: CallShape) -> None:
    (found,) = [use for use in uses_of(source) if use.call is not None]
    assert (found.name, found.call) == ("torch_npu.op", shape)


@pytest.mark.parametrize(
    "change",
    ["o['b'] = 2", "o |= x", "o.update(b=2)", "o.pop('a')", "del o['a']"],
)
def test_keywords_that_are_changed(change: str) -> None:
    source = f"def f():\n  o = {{'a': 1}}\n  {change}\n  torch_npu.op(**o)"
    (doubt,) = [use for use in uses_of(source) if use.doubt]
    assert doubt.doubt == "** of unknown keywords"


def test_keywords_that_a_caller_may_give() -> None:
    found = uses_of("def f(o):\n  o = o or {'a': 1}\n  torch_npu.op(**o)")
    assert [use.doubt for use in found if use.doubt] == ["** of unknown keywords"]


def test_functions_that_call_each_other() -> None:
    """Each is read once, however often it is called."""
    chain = "".join(f"def f{n}(): return f{n + 1}() or f{n + 1}()\n" for n in range(40))
    source = f"{chain}def f40(): return npu.Stream()\nf0().gone"
    assert STREAM in {use.name for use in uses_of(source)}
