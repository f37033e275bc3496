"""Members that an oversized apply leaves out change neither its conflicts nor its result."""

from __future__ import annotations

import random
from typing import Any

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.objects import conversion
from apiserver.fieldmanager import excess
from apiserver.schema.resource import Object
from structuredmerge import updater
from tests.fixtures.cases import each_case
from tests.unit.fieldmanager.written import Written, resource_of

KIND = "ResourceClaim"


def claim(draw: random.Random) -> Object:
    metadata: Object = {"name": "c", "namespace": "n"}
    for name in ("labels", "annotations"):
        if keys := draw.sample("abcdef", draw.randint(0, 5)):
            metadata[name] = {key: draw.choice("xy") for key in keys}
    if finalizers := draw.sample(["a/a", "b/b", "c/c", "d/d"], draw.randint(0, 4)):
        metadata["finalizers"] = finalizers
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": KIND, "metadata": metadata, "spec": spec}


def outcome(written: Written, patch: Object, *, most: int, manager: str, force: bool) -> Any:
    """The result of an apply, without its managers and with finalizers in order; or its refusal."""
    resource = resource_of(KIND)
    shown = {} if written.body is None else conversion.served(resource, written.object)
    writer = written.writer(resource, manager, force=force)._replace(most=most)
    try:
        made = written.managers.applied(patch, {"kind": KIND, "apiVersion": resource.api_version, **shown}, writer)
    except StatusError as e:
        return e.code, e.message
    metadata = {name: x for name, x in made["metadata"].items() if name != "managedFields"}
    if "finalizers" in metadata:
        metadata["finalizers"] = sorted(metadata["finalizers"])
    return {**made, "metadata": metadata}


@each_case("seed", range(300))
def test_oversized_apply_has_the_conflicts_and_result_of_a_fitting_one(seed: int) -> None:
    draw = random.Random(seed)
    written = Written(KIND)
    match draw.randint(0, 3):
        case 0:
            written.create(claim(draw), manager="b")
        case 1:
            written.store(claim(draw))
        case 2:
            written.apply(claim(draw), manager="a")
            written.apply(claim(draw), manager="b", force=True)
    patch = claim(draw)
    for manager in ("a", "b", "c", "kubectl"):
        for force in (False, True):
            whole = outcome(written, patch, most=1 << 30, manager=manager, force=force)
            assert outcome(written, patch, most=0, manager=manager, force=force) == whole


def test_apply_that_is_too_large_merges_one_new_text_of_each_member(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[Object] = []
    apply = updater.apply

    def noted(live: Any, patch: Any, **how: Any) -> Any:
        merged.append(patch["metadata"])
        return apply(live, patch, **how)

    monkeypatch.setattr(updater, "apply", noted)
    written = Written(KIND)
    written.create(claim(random.Random(1)), manager="b")
    many = {f"k{at}": "v" for at in range(1000)}
    wide = {
        **claim(random.Random(1)),
        "metadata": {"name": "c", "labels": many, "finalizers": [f"x/{k}" for k in many]},
    }
    made = outcome(written, wide, most=10_000, manager="a", force=True)
    assert [(len(x["labels"]), len(x["finalizers"])) for x in merged] == [(1, 1)]
    assert many.items() <= made["metadata"]["labels"].items()
    assert len(made["metadata"]["finalizers"]) >= 1000


def test_configuration_that_fits_is_left_as_it_is() -> None:
    patch = claim(random.Random(2))
    lighter, left = excess.taken(patch, {}, [], most=1 << 20)
    assert lighter is patch
    assert not left
