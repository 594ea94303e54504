"""The options in `ProfilerConfig`, and the detailed annotation of a step."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from vllm.config.profiler import ProfilerConfig
from vllm.v1.core.sched.output import CachedRequestData
from vllm.v1.worker.gpu_worker import Worker


def test_off_by_default():
    config = ProfilerConfig()
    assert config.capture_torch_profiler is False
    assert getattr(config, "detailed_trace_annotation", False) is False


def test_needs_the_torch_profiler():
    for profiler in (None, "cuda"):
        with pytest.raises(ValueError, match="only applicable when profiler is set to"):
            ProfilerConfig(profiler=profiler, capture_torch_profiler=True)


@pytest.mark.parametrize("uri", ["gs://bucket/traces", "s3://bucket", "hdfs://x/y"])
def test_a_remote_directory_is_refused_by_name(uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=uri):
        ProfilerConfig(
            profiler="torch", torch_profiler_dir=uri, capture_torch_profiler=True
        )
    assert not list(tmp_path.iterdir())
    # Without capture traces such a directory is as good as ever.
    assert ProfilerConfig(profiler="torch", torch_profiler_dir=uri).torch_profiler_dir


def scheduled(new, cached):
    """A scheduler output; rows are (id, computed, scheduled, output tokens)."""
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=name, num_computed_tokens=computed)
            for name, computed, _, _ in new
        ],
        scheduled_cached_reqs=CachedRequestData(
            req_ids=[row[0] for row in cached],
            resumed_req_ids=set(),
            new_token_ids=[],
            all_token_ids={},
            new_block_ids=[],
            num_computed_tokens=[row[1] for row in cached],
            num_output_tokens=[row[3] for row in cached],
        ),
        scheduled_encoder_input_stats=None,
        num_scheduled_tokens={row[0]: row[2] for row in [*new, *cached]},
    )


def annotation(output, detailed):
    worker = MagicMock()
    worker.vllm_config.profiler_config.detailed_trace_annotation = detailed
    Worker.annotate_profile(worker, output)
    return worker.profiler.annotate_context_manager.call_args[0][0]


def test_annotations_of_a_mixed_step():
    output = scheduled([("c", 0, 4, 0)], [("g", 10, 1, 1)])
    assert annotation(output, False) == "execute_context_1(4)_generation_1(1)"
    # The example of upstream's own test since 0.26.
    assert annotation(output, True) == (
        "execute_5_context_1(sq4sk4sqsq16sqsk16)_generation_1(sq1sk11sqsq1sqsk11)"
    )


def test_sums_over_requests():
    new = [("a", 0, 7, 0), ("b", 16, 5, 0)]
    chunked = [("c", 32, 9, 0)]
    generating = [("d", 20, 1, 3), ("e", 41, 2, 9)]
    context = [(7, 7), (5, 21), (9, 41)]
    generation = [(1, 21), (2, 43)]

    def sums(pairs):
        sq, sk = sum(q for q, _ in pairs), sum(k for _, k in pairs)
        return (
            f"{len(pairs)}(sq{sq}sk{sk}sqsq{sum(q * q for q, _ in pairs)}"
            f"sqsk{sum(q * k for q, k in pairs)})"
        )

    assert annotation(scheduled(new, chunked + generating), True) == (
        f"execute_24_context_{sums(context)}_generation_{sums(generation)}"
    )


def test_an_empty_step():
    assert annotation(scheduled([], []), True) == (
        "execute_0_context_0(sq0sk0sqsq0sqsk0)_generation_0(sq0sk0sqsq0sqsk0)"
    )
