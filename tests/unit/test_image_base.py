"""References of images, and where a package root is looked for."""

from __future__ import annotations

import pytest

from patchkit.image_base import image_python, split_tag
from patchkit.releases import load_releases


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("my/vllm:0.25", ("my/vllm", "0.25")),
        ("my/vllm", ("my/vllm", "latest")),
        ("localhost:5000/vllm", ("localhost:5000/vllm", "latest")),
        ("localhost:5000/vllm:x", ("localhost:5000/vllm", "x")),
    ],
)
def test_split_tag(reference: str, parts: tuple[str, str]) -> None:
    assert split_tag(reference) == parts


def test_python_is_told_by_the_package_root() -> None:
    release = load_releases().find("0.25")
    assert image_python("/usr/local/lib/python3.11/dist-packages", release) == (3, 11)
    assert image_python("/vllm-workspace/vllm", release) == (3, 12)
