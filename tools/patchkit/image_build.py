"""Builds a patched image: the base's own files, planned here, put back as one layer."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from patchkit import image_labels as labels
from patchkit.ascend_base import (
    PLUGINS,
    InstalledVLLM,
    check_installed,
    platform_packages,
    plugins_to_load,
)
from patchkit.blob import blob_id
from patchkit.engine import connect
from patchkit.errors import EnvironmentProblem, OwnBug, Refused
from patchkit.findings import Finding, has_errors
from patchkit.git_engine import GitMissing, apply_with_git
from patchkit.image_base import (
    Base,
    check_version,
    find_base,
    find_package_root,
    image_python,
    split_tag,
)
from patchkit.image_bytecode import checked_bytecode
from patchkit.image_layer import Layer, make_layer
from patchkit.image_source import ImageSource, created_container
from patchkit.plan import make_plan
from patchkit.plan_types import Plan, PlannedFile, Policy
from patchkit.python_checks import check_python
from patchkit.releases import Release
from patchkit.series import Series, load_series

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.images import Image

REPOSITORY = "vllm-patched"
# Of an image's configuration: what a user notices, and a commit must not change.
_KEPT = (
    *("Cmd", "Entrypoint", "Env", "User", "WorkingDir", "ExposedPorts", "Volumes"),
    *("StopSignal", "Healthcheck", "Shell"),
)


@dataclass
class Built:
    """A patched image and what its layer holds; ``layer_bytes`` is its size."""

    reference: str
    image_id: str
    base: str
    base_digest: str
    version: str
    policy: Policy
    patch_set: str
    package_root: str
    files: list[str]
    layer_bytes: int
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class SeriesRefused(Refused):
    """The series does not fit this base; ``findings`` say where."""

    def __init__(self, message: str, findings: Iterable[Finding]) -> None:
        super().__init__(message)
        self.findings = list(findings)


def default_reference(
    release: Release, flavour: str, *, simulated: bool = False
) -> str:
    """The name a patched image gets: ``vllm-patched:0.25-capture``.

    One on the stand-in for CANN is ``vllm-patched:0.25-ascend-simulated-cann``.
    """
    suffix = "-simulated-cann" if simulated else ""
    return f"{REPOSITORY}:{release.name}-{flavour}{suffix}"


def build_image(
    release: Release,
    *,
    flavour: str = "capture",
    base: str = "",
    reference: str = "",
    policy: Policy = "exact",
    package_root: str | None = None,
) -> Built:
    """Patch an image and commit it under ``reference``.

    ``base`` is empty for the pinned image, ``local``, or a reference. Raises
    EnvironmentProblem, UsageError or Refused; then no image was made.
    """
    series = load_series(release, flavour)
    if has_errors(series.findings):
        raise SeriesRefused("the series itself is refused", series.findings)
    client = connect()
    found = find_base(client, release, base, flavour)
    vllm = found.vllm
    simulated = labels.SIMULATED in (found.image.labels or {})
    environment: dict[str, str] = {}
    with created_container(client, found.image) as container:
        wanted_root = package_root or (vllm.root if vllm else None)
        root = find_package_root(container, release, wanted_root)
        source = ImageSource(container, root, found.name)
        version = check_version(source, release, vllm)
        notes: list[str] = []
        if vllm:
            notes += check_installed(vllm, release, found.name)
            environment = _environment(vllm, notes)
        plan = _plan(series, source, policy, image_python(root, release), notes)
        bytecode = checked_bytecode(plan.changes, source)
        notes += [f"unchecked bytecode made checked: {pyc.path}" for pyc in bytecode]
        changes = (*plan.changes, *bytecode)
        layer = make_layer(changes, source)
        _put(container, root, layer)
        _check_diff(container, root, layer)
        built = Built(
            reference or default_reference(release, flavour, simulated=simulated),
            "",
            found.name,
            found.digest,
            version,
            policy,
            series.digest,
            root,
            [posixpath.join(root, path) for path in layer.files],
            0,
            notes,
            list(plan.findings),
        )
        if not found.from_registry:
            notes.append("the base has no registry digest; its image id stands for it")
        image = _commit(container, found, series, built, environment)
    try:
        _check_config(image, found, environment)
        with created_container(client, image) as container:
            _check_files(ImageSource(container, root, "the image made"), changes, layer)
    except BaseException:
        client.images.remove(str(image.id), force=True)
        raise
    built.image_id = str(image.id)
    built.layer_bytes = int(image.history()[0]["Size"])
    return built


def _environment(vllm: InstalledVLLM, notes: list[str]) -> dict[str, str]:
    """What the patched image sets, so that the built-in platform is the one chosen."""
    listed = plugins_to_load(vllm.plugins)
    if listed is None:
        return {}
    packages = ", ".join(platform_packages(vllm.plugins))
    notes.append(
        f"{packages} brings a platform that would take precedence: the image sets "
        f"{PLUGINS}={listed!r}, which leaves all of it out; docker run -e {PLUGINS}=… "
        "chooses otherwise"
    )
    return {PLUGINS: listed}


def _plan(
    series: Series,
    source: ImageSource,
    policy: Policy,
    python: tuple[int, int],
    notes: list[str],
) -> Plan:
    plan = make_plan(series.patches, source, policy=policy)
    if plan.state == "applied":
        raise Refused(f"{source.label} is patched already: every file is as after")
    if plan.skipped:
        raise Refused(
            f"{source.label} is partly patched: {', '.join(plan.skipped)}",
            hint="name the image it was made from",
        )
    findings = list(plan.findings)
    if plan.state == "apply":
        findings += check_python(plan, feature_version=python, ruff_config=None)
    if has_errors(findings):
        raise SeriesRefused(f"the series does not fit {source.label}", findings)
    try:
        apply_with_git(series.patches, plan)
    except GitMissing:
        notes.append("no git here: its second opinion was left out")
    return plan


def _put(container: Container, root: str, layer: Layer) -> None:
    from docker.errors import APIError

    try:
        done = container.put_archive(root, layer.tar)
    except APIError as error:
        raise EnvironmentProblem(
            f"the engine could not write the layer: {error.explanation}"
        ) from None
    if not done:
        raise EnvironmentProblem("the engine could not write the layer")


def _check_diff(container: Container, root: str, layer: Layer) -> None:
    """The container differs from its base in the layer's paths and their folders."""
    wanted = {posixpath.join(root, path) for path in (*layer.files, *layer.folders)}
    above = root
    while above != "/":
        wanted.add(above)
        above = posixpath.dirname(above)
    changed = {entry["Path"] for entry in container.diff() or ()}
    strange = sorted(changed - wanted)
    files = {posixpath.join(root, path) for path in layer.files}
    if strange or files - changed:
        raise OwnBug(f"the layer is not what was planned: {strange or files - changed}")


def _commit(
    container: Container,
    base: Base,
    series: Series,
    built: Built,
    environment: Mapping[str, str],
) -> Image:
    from docker.errors import APIError

    config = base.image.attrs["Config"]
    values = {
        labels.BASE_NAME: base.name,
        labels.BASE_DIGEST: base.digest,
        labels.RELEASE: series.release.name,
        labels.VERSION: built.version,
        labels.FLAVOUR: series.flavour,
        labels.PATCH_SET: series.digest,
        labels.PATCHES: " ".join(patch.name for patch in series.patches),
        labels.POLICY: built.policy,
        labels.PACKAGE_ROOT: built.package_root,
    }
    changes = labels.label_changes(values)
    changes += [f"ENV {name}={value}" for name, value in environment.items()]
    if not config.get("Cmd") and not config.get("Entrypoint"):
        changes.append("CMD []")
    repository, tag = split_tag(built.reference)
    try:
        return container.commit(
            repository, tag, message="vllm-patchkit", changes="\n".join(changes)
        )
    except APIError as error:
        raise EnvironmentProblem(
            f"the engine could not commit {built.reference}: {error.explanation}",
            hint="a reference is name:tag in small letters; is the engine's disk full?",
        ) from None


def _check_config(
    image: Image, base: Base, environment: Mapping[str, str] | None = None
) -> None:
    """One layer more than the base, and its configuration but for ``environment``."""
    image.reload()
    layers, below = (entry.attrs["RootFS"]["Layers"] for entry in (image, base.image))
    if layers[:-1] != below:
        raise OwnBug(f"the image has {len(layers)} layers, its base {len(below)}")
    for key in _KEPT:
        now, before = (_config(entry, key) for entry in (image, base.image))
        if key == "Env" and environment:
            before = _with(before, environment)
            now, before = sorted(now or ()), sorted(before)
        if now != before:
            raise OwnBug(f"the commit changed {key} from {before} to {now}")


def _with(variables: list[str] | None, more: Mapping[str, str]) -> list[str]:
    kept = [word for word in variables or () if word.partition("=")[0] not in more]
    return [*kept, *(f"{name}={value}" for name, value in more.items())]


def _check_files(
    source: ImageSource, changes: tuple[PlannedFile, ...], layer: Layer
) -> None:
    """Every changed file is in the image that was made, as planned."""
    for change in changes:
        assert change.after is not None
        state = source.read(change.path)
        if state is None or blob_id(state.data) != blob_id(change.after.data):
            raise OwnBug(f"{change.path} is not in the image as planned")
        if source.metadata(change.path) != layer.files[change.path]:
            raise OwnBug(f"{change.path} has another mode, owner or time stamp")


def _config(image: Image, key: str) -> Any:
    return image.attrs["Config"].get(key) or None
