"""Smoke tests of a patched image: what runs inside is in ``dockerfiles/smoke``."""

from __future__ import annotations

import contextlib
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from patchkit import image_labels as labels
from patchkit.engine import connect
from patchkit.errors import UsageError
from patchkit.image_run import run_inside
from patchkit.image_source import ImageSource, created_container
from patchkit.npu_tests import FLAVOUR as ASCEND
from patchkit.plan import make_plan
from patchkit.plan_types import Policy
from patchkit.releases import Release
from patchkit.series import load_series
from patchkit.smoke_checks import Smoke
from patchkit.smoke_npu import check_npu_engine, need_simulated_cann
from patchkit.step_progress import step_progress

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image

OPTIONS = {
    name: {"profiler": "torch", "torch_profiler_dir": "/tmp/traces", name: True}
    for name in ("capture_torch_profiler", "detailed_trace_annotation")
}
NOT_SHOWN = (
    "not shown here: graph capture and its traces, as a CPU captures no graphs; "
    "tests/upstream runs the capture functions, a GPU shows the rest"
)


def smoke_test(release: Release, reference: str, flavour: str) -> Smoke:
    """Run every check on the image called ``reference`` and on its base.

    Raises UsageError when that is no patched image of this release, or its base is
    gone; EnvironmentProblem when a container cannot run.
    """
    client = connect()
    image = _patched(client, reference, release, flavour)
    if flavour == ASCEND:
        need_simulated_cann(image, reference)
    base = _base(client, image, reference)
    smoke = Smoke(reference, str(image.labels[labels.BASE_NAME]), not_shown=NOT_SHOWN)
    spec = _specification(client, image, base, release, flavour)
    _check_labels(smoke, image, release, flavour)
    with step_progress("checking files, bytecode and imports"):
        _check_files(smoke, client, image, release, spec)
    with step_progress("checking the profiler options"):
        _check_options(smoke, client, image, base)
    if flavour == ASCEND:
        check_npu_engine(smoke, client, image, base)
        return smoke
    with step_progress("running the engine, patched, unpatched and profiled"):
        _check_engine(smoke, client, image, base)
    return smoke


def _patched(
    client: docker.DockerClient, reference: str, release: Release, flavour: str
) -> Image:
    from docker.errors import ImageNotFound

    try:
        image = client.images.get(reference)
    except ImageNotFound:
        raise UsageError(
            f"no image {reference}",
            hint=f"make image VERSION={release.name} FLAVOUR={flavour} BASE=local",
        ) from None
    if image.labels.get(labels.RELEASE) != release.name:
        raise UsageError(
            f"{reference} is no patched image of release {release.name}",
            hint=f"its label {labels.RELEASE} says: "
            f"{image.labels.get(labels.RELEASE, 'nothing')}",
        )
    return image


def _base(client: docker.DockerClient, image: Image, reference: str) -> Image:
    from docker.errors import ImageNotFound

    name, digest = image.labels[labels.BASE_NAME], image.labels[labels.BASE_DIGEST]
    for known in (f"{name.rpartition(':')[0] or name}@{digest}", digest, name):
        with contextlib.suppress(ImageNotFound):
            found = client.images.get(known)
            below = found.attrs["RootFS"]["Layers"]
            if image.attrs["RootFS"]["Layers"][:-1] == below:
                return found
    raise UsageError(
        f"the base of {reference}, {name} {digest}, is not here any more",
        hint=f"docker pull {name}, or build the image again",
    )


def _specification(
    client: docker.DockerClient,
    image: Image,
    base: Image,
    release: Release,
    flavour: str,
) -> dict[str, Any]:
    """Which bytes each file has to have, planned anew from the base's own files."""
    root = image.labels[labels.PACKAGE_ROOT]
    policy: Policy = "context" if image.labels[labels.POLICY] == "context" else "exact"
    with created_container(client, base) as container:
        source = ImageSource(container, root, "the base")
        plan = make_plan(load_series(release, flavour).patches, source, policy=policy)
    return {
        "root": root,
        "files": {
            file.path: hashlib.sha256(file.after.data).hexdigest()
            for file in plan.changes
            if file.after is not None
        },
    }


def _check_labels(smoke: Smoke, image: Image, release: Release, flavour: str) -> None:
    digest = load_series(release, flavour).digest
    label = image.labels.get(labels.PATCH_SET)
    smoke.check("the image has this patch set", label == digest, label)


def _check_files(
    smoke: Smoke,
    client: docker.DockerClient,
    image: Image,
    release: Release,
    spec: dict[str, Any],
) -> None:
    seen = run_inside(client, image, "files.py", files={"spec.json": json.dumps(spec)})
    smoke.facts["files"] = seen
    version = str(seen["version"])
    known = version.partition("+")[0] in release.versions
    smoke.check("the package's version", known, version)
    count = f"{seen['files']} files"
    smoke.check(
        "every touched file's hash", not seen["wrong_hash"], seen["wrong_hash"] or count
    )
    python = f"{count}, Python {seen['python']}"
    broken = seen["not_compiled"]
    smoke.check("they compile, by the image's Python", not broken, broken or python)
    failed = seen["not_imported"]
    modules = f"{len(seen['modules'])} modules"
    smoke.check("every touched module imports", not failed, failed or modules)


def _check_options(
    smoke: Smoke, client: docker.DockerClient, image: Image, base: Image
) -> None:
    argument = json.dumps(OPTIONS)
    ours, theirs = _run_both(client, image, base, "options.py", argument)
    smoke.facts["options"] = {"patched": ours, "unpatched": theirs}
    for name in OPTIONS:
        accepted = ours[name]["accepted"] and ours[name][name] is True
        smoke.check(f"--profiler-config takes {name}", accepted, ours[name])
        refused = not theirs[name]["accepted"] and name in theirs[name]["reason"]
        smoke.check(f"the unpatched image refuses {name}", refused, theirs[name])


def _check_engine(
    smoke: Smoke, client: docker.DockerClient, image: Image, base: Image
) -> None:
    ours, theirs = _run_both(client, image, base, "engine.py")
    profiled = run_inside(client, image, "engine.py", json.dumps({"profile": True}))
    smoke.facts["engine"] = {
        "patched": ours,
        "unpatched": theirs,
        "profiled": profiled,
    }
    spread = f"{ours['distinct']} distinct tokens"
    smoke.check("the tokens tell runs apart", ours["distinct"] > 20, spread)
    same = ours["tokens"] == theirs["tokens"]
    count = sum(map(len, ours["tokens"]))
    smoke.check("greedy tokens equal the unpatched image's", same, f"{count} tokens")
    same = profiled["tokens"] == theirs["tokens"]
    smoke.check("and with the profiler options on", same, f"{count} tokens")
    detailed = [a for a in profiled["annotations"] if "sqsq" in a]
    smoke.check(
        "profiled steps carry detailed annotations", bool(detailed), detailed[:1]
    )


def _run_both(
    client: docker.DockerClient, image: Image, base: Image, *words: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of one script in both images, at the same time."""
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(run_inside, client, image, *words)
        theirs = pool.submit(run_inside, client, base, *words)
        return ours.result(), theirs.result()
