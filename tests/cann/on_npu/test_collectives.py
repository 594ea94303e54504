"""torch.distributed over the simulated HCCL, against plain sums of what ranks gave."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
LIMIT_SECONDS = 100

Results = list[dict[str, Any]]


@pytest.fixture(scope="module", params=[2, 4])
def ranks(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    need: Callable[[bool, str], None],
) -> Results:
    """What each rank of a world of 2 or 4 got."""
    need(find_spec("torch_npu") is not None, "torch_npu is not installed")
    # Before the first import of torch, which would load torch_npu.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch

    world = request.param
    folder = tmp_path_factory.mktemp(f"world{world}")
    logs = [(folder / f"{rank}.log") for rank in range(world)]
    programs = []
    # More threads than cores would only take turns.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}
    for rank, log in enumerate(logs):
        command = [sys.executable, str(HERE / "rank_program.py")]
        with log.open("w") as out:
            programs.append(
                subprocess.Popen(
                    [*command, str(rank), str(world), str(folder)],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
            )
    try:
        codes = [program.wait(LIMIT_SECONDS) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.wait()
    text = "\n".join(log.read_text()[-4000:] for log in logs)
    assert codes == [0] * world, text
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


def _given(world: int, turn: int, dtype: Any, numel: int) -> Any:
    """The inputs of all ranks, one a row."""
    import torch
    from rank_program import given

    return torch.stack([given(rank, turn, dtype, numel) for rank in range(world)])


def _same(got: Any, expected: Any) -> None:
    import torch

    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def _expected(collective: str, world: int, rank: int, turn: int, dtype: Any) -> Any:
    """Sums in float64, rounded once."""
    from rank_program import SHARD

    if collective == "all_reduce":
        return (2 * _given(world, turn, dtype, SHARD)).double().sum(0).to(dtype)
    if collective == "all_gather":
        return _given(world, turn, dtype, SHARD).flatten()
    total = _given(world, turn, dtype, SHARD * world).double().sum(0).to(dtype)
    return total[rank * SHARD : (rank + 1) * SHARD]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_eager_collective_gives_sums_and_shards_of_all_ranks(
    ranks: Results, collective: str, dtype: str
) -> None:
    import torch

    kind = getattr(torch, dtype)
    for rank, got in enumerate(ranks):
        for turn, value in enumerate(got[f"{collective} {kind} eager"]):
            _same(value, _expected(collective, len(ranks), rank, turn, kind))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_captured_collective_runs_at_each_replay_with_new_inputs(
    ranks: Results, collective: str, dtype: str
) -> None:
    import torch

    kind = getattr(torch, dtype)
    for rank, got in enumerate(ranks):
        captured, *replays = got[f"{collective} {kind} graph"]
        assert captured.isnan().all(), "the capture computed"
        assert len(replays) == 3
        for turn, value in enumerate(replays):
            expected = _expected(collective, len(ranks), rank, turn, kind) + 1
            _same(value, expected)


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "int8", "int32", "int64"]
)
def test_all_reduce_takes_each_reduction_of_each_type(
    ranks: Results, dtype: str
) -> None:
    import torch
    from rank_program import SHARD
    from torch.distributed import ReduceOp

    kind = getattr(torch, dtype)
    wide = torch.float64 if kind.is_floating_point else torch.int64
    inputs = _given(len(ranks), 0, kind, SHARD).to(wide)
    expected = {
        ReduceOp.SUM: inputs.sum(0),
        # float32 rounds each product.
        ReduceOp.PRODUCT: inputs.prod(0),
        ReduceOp.MAX: inputs.amax(0),
        ReduceOp.MIN: inputs.amin(0),
    }
    for got in ranks:
        for op, value in expected.items():
            slack = 1e-6 if kind == torch.float32 and op == ReduceOp.PRODUCT else 0
            torch.testing.assert_close(
                got[f"{op} {kind}"], value.to(kind), rtol=slack, atol=0
            )


def test_list_forms_equal_the_tensor_forms(ranks: Results) -> None:
    import torch

    for rank, got in enumerate(ranks):
        for name in ("all_gather", "reduce_scatter"):
            expected = _expected(name, len(ranks), rank, 0, torch.float32)
            _same(got[f"{name} list"], expected)


def test_rooted_collectives_take_from_or_give_to_the_root(ranks: Results) -> None:
    import torch
    from rank_program import SHARD

    world = len(ranks)
    inputs = _given(world, 0, torch.float32, SHARD)
    many = _given(world, 0, torch.float32, SHARD * world)
    for rank, got in enumerate(ranks):
        for dtype in (torch.uint8, torch.float32):
            _same(got[f"broadcast {dtype}"], _given(world, 0, dtype, SHARD)[1])
        _same(got["scatter"], many[1].chunk(world)[rank])
    _same(ranks[1]["reduce"], inputs.double().sum(0).float())


def test_all_to_all_transposes_even_and_uneven_parts(ranks: Results) -> None:
    import torch
    from rank_program import SHARD, SPLITS

    world = len(ranks)
    many = _given(world, 0, torch.float32, SHARD * world)
    splits = SPLITS[world]
    parts = [
        many[rank, : sum(splits[rank])].split(splits[rank]) for rank in range(world)
    ]
    for rank, got in enumerate(ranks):
        _same(got["all_to_all"], torch.cat([row.chunk(world)[rank] for row in many]))
        _same(got["all_to_all splits"], torch.cat([row[rank] for row in parts]))


def test_a_message_passed_around_reaches_every_rank(ranks: Results) -> None:
    import torch
    from rank_program import SHARD

    first = _given(len(ranks), 0, torch.float32, SHARD)[0]
    for got in ranks:
        _same(got["ring"], first)


def test_a_subgroup_reduces_over_its_own_ranks(ranks: Results) -> None:
    import torch
    from rank_program import ROUNDS, SHARD, SUBGROUP

    members = SUBGROUP[len(ranks)]
    totals = [
        _given(len(ranks), turn, torch.float32, SHARD)[members].double().sum(0).float()
        for turn in range(ROUNDS)
    ]
    for rank, got in enumerate(ranks):
        assert ("subgroup" in got) == (rank in members)
        if rank in members:
            _same(got["subgroup"], totals[0])
            for value, total in zip(got["subgroup graph"][1:], totals, strict=True):
                _same(value, 2 * total + 1)


# Failures are provoked in the smaller world.
_of_two = pytest.mark.parametrize("ranks", [2], indirect=True)


@_of_two
@pytest.mark.parametrize(
    ("case", "calls"),
    [
        ("other count", ("HcclAllReduce of 8 float32", "HcclAllReduce of 7 float32")),
        ("other type", ("HcclAllReduce of 8 float32", "HcclAllReduce of 8 bfloat16")),
        ("message", ("HcclSend of 3 float32", "HcclSend of 4 float32")),
    ],
)
def test_ranks_that_differ_are_an_error_that_names_both(
    ranks: Results, case: str, calls: tuple[str, str]
) -> None:
    for got in ranks:
        for rank, call in enumerate(calls):
            assert call in got[case]
            assert f"on rank {rank}" in got[case]


@_of_two
def test_ranks_that_differed_go_on_in_step(ranks: Results) -> None:
    import torch

    for got in ranks:
        _same(got["after"], torch.full((8,), 4.0))


@_of_two
def test_a_rank_that_never_comes_is_an_error_that_names_it(ranks: Results) -> None:
    alone, unmet = ranks[0]["alone"], ranks[0]["unmet"]
    assert "HcclAllReduce of 8 float32, sum, on rank 0 of 2" in alone
    assert "rank 1 began 4, last HcclAllReduce of 8 float32, sum (not there)" in alone
    assert "HcclCommInitRootInfo of rank 0 of 2: ranks [1] did not come" in unmet
