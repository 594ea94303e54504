"""What every test folder shares: a missing part skips with its reason, or fails CI."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

REQUIRE_ALL = os.environ.get("PATCHKIT_REQUIRE_ALL") == "1"


def missing_part(reason: str) -> None:
    """Skip the test, or fail it where every part is required (as in CI)."""
    if REQUIRE_ALL:
        pytest.fail(f"required here, and missing: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def need() -> Callable[[bool, str], None]:
    """``need(condition, reason)``: go on, or end as ``missing_part`` does."""

    def check(condition: bool, reason: str) -> None:
        if not condition:
            missing_part(reason)

    return check
