"""The labels of a patched image: what it was made from, and with what."""

from __future__ import annotations

from collections.abc import Mapping

# Of our own labels; those of OCI are in the image specification's annotations.md.
NAMESPACE = "io.vllm-patchkit"
BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"
RELEASE = f"{NAMESPACE}.release"
VERSION = f"{NAMESPACE}.vllm-version"
FLAVOUR = f"{NAMESPACE}.flavour"
PATCH_SET = f"{NAMESPACE}.patch-set"
POLICY = f"{NAMESPACE}.policy"
PATCHES = f"{NAMESPACE}.patches"
PACKAGE_ROOT = f"{NAMESPACE}.package-root"
# On images without CANN that look as if they had it: what is there instead.
SIMULATED = f"{NAMESPACE}.simulated-cann"
# Of an image with vLLM made on a CANN image: what that was.
CANN_NAME = f"{NAMESPACE}.cann.name"
CANN_DIGEST = f"{NAMESPACE}.cann.digest"


def label_changes(labels: Mapping[str, str]) -> list[str]:
    """``LABEL`` instructions for a commit; values are quoted as Dockerfiles need."""
    changes = []
    for key, value in sorted(labels.items()):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
        changes.append(f'LABEL {key}="{quoted}"')
    return changes
