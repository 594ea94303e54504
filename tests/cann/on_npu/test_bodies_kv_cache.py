"""Writes into the paged cache against a loop over tokens."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from body_cases import dtypes, few, random, seeds
from hypothesis import given
from hypothesis import strategies as st
from simulated.bodies import BODIES

scatter = BODIES["npu::npu_scatter_pa_kv_cache"]
reshape_and_cache = BODIES["atb::_npu_reshape_and_cache"]

BLOCKS, SIZE, HEADS = 3, 4, 2


def slots_of(tokens: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(BLOCKS * SIZE, generator=generator)[:tokens].int()


@few
@given(st.integers(0, 12), st.sets(st.integers(0, 11)), dtypes, seeds)
def test_reshape_and_cache_leaves_padding_out(tokens, padding, dtype, seed) -> None:
    slots = slots_of(tokens, seed)
    slots[[token for token in padding if token < tokens]] = -1
    key = random(seed, tokens, HEADS, 8, dtype=dtype)
    value = random(seed + 1, tokens, HEADS, 8, dtype=dtype)
    caches = [random(seed + 2, BLOCKS, SIZE, HEADS, 8, dtype=dtype) for _ in "kv"]
    wanted = [cache.clone() for cache in caches]
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            wanted[0][slot // SIZE][slot % SIZE] = key[token]
            wanted[1][slot // SIZE][slot % SIZE] = value[token]
    assert reshape_and_cache(key, value, *caches, slots) is None
    assert all(map(torch.equal, caches, wanted))


@few
@given(st.integers(0, 12), st.sampled_from([None, "Norm", "PA_NZ"]), dtypes, seeds)
def test_scatter(tokens, mode, dtype, seed) -> None:
    slots = slots_of(tokens, seed)
    sizes, last = {"key": 8, "value": 16}, 4
    pairs = []
    for name, size in sizes.items():
        shape = (BLOCKS, SIZE, HEADS, size)
        if mode == "PA_NZ":
            shape = (BLOCKS, HEADS * size // last, SIZE, last)
        rows = random(seed + len(name), tokens, HEADS, size, dtype=dtype)
        pairs.append((rows, random(seed, *shape, dtype=dtype)))
    wanted = [cache.clone() for _, cache in pairs]
    for token, slot in enumerate(slots.tolist()):
        block, offset = divmod(slot, SIZE)
        for (rows, _), cache in zip(pairs, wanted, strict=True):
            for at, element in enumerate(rows[token].flatten()):
                if mode == "PA_NZ":
                    cache[block, at // last, offset, at % last] = element
                else:
                    cache[block, offset].view(-1)[at] = element
    (key, key_cache), (value, value_cache) = pairs
    args = (key, value, key_cache, value_cache, slots)
    given_mode = {} if mode == "PA_NZ" else {"cache_mode": mode}
    assert scatter(*args, **given_mode) is None
    assert torch.equal(key_cache, wanted[0])
    assert torch.equal(value_cache, wanted[1])


@pytest.mark.parametrize("op", [reshape_and_cache, partial(scatter, cache_mode="Norm")])
def test_the_last_of_two_tokens_in_one_slot_stays(op) -> None:
    key = torch.arange(3.0).reshape(3, 1, 1)
    caches = [torch.full((1, 2, 1, 1), 9.0) for _ in "kv"]
    op(key, key, *caches, torch.tensor([1, 1, 1]))
    assert [cache.flatten().tolist() for cache in caches] == [[9, 2], [9, 2]]


KEY = torch.ones(2, 1, 2)
CACHE = torch.ones(2, 4, 1, 2)
SLOTS = torch.tensor([0, 5])
NORM = {"cache_mode": "Norm"}


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: scatter(KEY, KEY, CACHE, CACHE, torch.tensor([0, 8]), **NORM),
            ValueError,
            r"slot_mapping=\[8\] lies outside the 8 slots",
        ),
        (
            lambda: scatter(KEY, KEY, CACHE, CACHE, torch.tensor([-1, 3]), **NORM),
            ValueError,
            r"slot_mapping=\[-1\]",
        ),
        (
            lambda: reshape_and_cache(KEY, KEY, CACHE, CACHE, torch.tensor([-2, 9])),
            ValueError,
            r"slot_indices=\[-2, 9\]",
        ),
        (
            lambda: scatter(KEY, KEY, CACHE, CACHE, SLOTS[:1], **NORM),
            ValueError,
            "argument key=",
        ),
        (
            lambda: reshape_and_cache(KEY, KEY, CACHE.half(), CACHE, SLOTS),
            ValueError,
            "argument key_cache=",
        ),
        (
            lambda: reshape_and_cache(KEY, KEY, CACHE, CACHE[..., :1], SLOTS),
            ValueError,
            "argument value_cache=",
        ),
        (
            lambda: reshape_and_cache(KEY, KEY, CACHE, CACHE[:1], SLOTS),
            ValueError,
            "value_cache=.* not as many slots",
        ),
        (
            lambda: scatter(KEY, KEY, CACHE, CACHE, SLOTS.float(), **NORM),
            ValueError,
            "argument slot_mapping=",
        ),
        (
            lambda: scatter(KEY, KEY, CACHE, CACHE, SLOTS, seq_lens=SLOTS),
            NotImplementedError,
            "seq_lens=",
        ),
        (
            lambda: scatter(KEY, KEY, CACHE, CACHE, SLOTS, cache_mode="NZ"),
            NotImplementedError,
            "cache_mode='NZ'",
        ),
        (
            lambda: scatter(KEY[None], KEY, CACHE, CACHE, SLOTS, **NORM),
            NotImplementedError,
            "argument key=",
        ),
    ],
)
def test_refusals(call, error, match) -> None:
    with pytest.raises(error, match=match):
        call()
