"""Runs inside a patched tree, by an interpreter with torch; see ../README.md."""

from __future__ import annotations

import logging

import eager_graphs
import pytest


@pytest.fixture
def eager(monkeypatch):
    """The stand-ins for a GPU's graphs, for one test."""
    eager_graphs.install(monkeypatch)


@pytest.fixture
def log(caplog, monkeypatch):
    """Records of vLLM's logger, which by default does not reach the root's."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    caplog.set_level(logging.DEBUG)
    return caplog
