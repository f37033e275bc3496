"""dryRun=All: the whole way of a write but its last step (invariant 12)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.promises.api.client import (
    ALLOCATED,
    JSON_PATCH,
    MERGE,
    Client,
    Object,
    Refusal,
    claim,
    content,
    device_class,
    names,
    version,
)

DRY: dict[str, Any] = {"dryRun": "All"}
OPTIONS = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}


@contextlib.contextmanager
def nothing_happens(api: Client, path: str) -> Iterator[None]:
    """No object changes and no watcher hears of anything."""
    before = api.get(path)
    with api.watch(path, resourceVersion=version(before)) as watch:
        yield
        assert api.get(path)["items"] == before["items"]
        after = api.create(path, claim("after"))
        assert watch.next() == ("ADDED", after)


def alike(obj: Object) -> Object:
    """An object without what no two calls have in common."""
    return content(obj, "uid", "creationTimestamp", "deletionTimestamp")


def test_a_rehearsed_create_is_the_real_one_without_a_version(api: Client, mine: str) -> None:
    with nothing_happens(api, api.claims(mine)):
        rehearsed = api.create(api.claims(mine), claim("one", labels={"a": "b"}), **DRY)
        generated = api.create(api.claims(mine), claim(generateName="gen-"), **DRY)

    assert rehearsed["metadata"].keys() >= {"uid", "creationTimestamp"}
    assert "resourceVersion" not in rehearsed["metadata"]
    assert generated["metadata"]["name"].startswith("gen-")
    assert alike(api.create(api.claims(mine), claim("one", labels={"a": "b"}))) == alike(rehearsed)


@pytest.mark.parametrize(
    "write",
    [
        lambda api, path, **q: api.put(path, claim("one", labels={"b": "2"}), **q),
        lambda api, path, **q: api.patch(path, {"metadata": {"labels": {"b": "2"}}}, **q),
        lambda api, path, **q: api.patch(path, [{"op": "remove", "path": "/metadata/labels"}], kind=JSON_PATCH, **q),
        lambda api, path, **q: api.patch(f"{path}/status", {"status": ALLOCATED}, **q),
        lambda api, path, **q: api.patch(path, {}, **q),
        lambda api, path, **q: api.delete(path, **q),
        lambda api, path, **q: api.delete(path, propagationPolicy="Foreground", **q),
    ],
)
def test_a_rehearsed_write_answers_as_the_real_one_at_the_stored_version(
    api: Client, mine: str, write: Callable[..., Object]
) -> None:
    path = f"{api.claims(mine)}/one"
    stored = api.create(api.claims(mine), claim("one", labels={"a": "1"}))

    with nothing_happens(api, api.claims(mine)):
        rehearsed = write(api, path, **DRY)

    assert version(rehearsed) == version(stored)
    assert alike(write(api, path)) == alike(rehearsed)


def test_a_rehearsal_counts_generations_as_the_real_write_would(api: Client, mine: str) -> None:
    api.create(api.classes, device_class(mine, finalizers=["example.com/f"]))
    path, patch = f"{api.classes}/{mine}", {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}

    assert api.patch(path, patch, **DRY)["metadata"]["generation"] == 2
    assert api.delete(path, **DRY)["metadata"]["generation"] == 2
    assert api.get(path)["metadata"]["generation"] == 1
    api.patch(path, {"metadata": {"finalizers": None}})


def test_a_rehearsed_collection_stays(api: Client, mine: str) -> None:
    for name in "ab":
        api.create(api.claims(mine), claim(name))

    with nothing_happens(api, api.claims(mine)):
        assert names(api.delete(api.claims(mine), **DRY)) == ["a", "b"]
        assert names(api.delete(api.claims(mine), OPTIONS, labelSelector="!x")) == ["a", "b"]


def test_a_rehearsed_removal_of_the_last_finalizer_deletes_nothing(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    api.create(api.claims(mine), claim("one", finalizers=["example.com/f"]))
    marked = api.delete(path)

    with nothing_happens(api, api.claims(mine)):
        rehearsed = api.patch(path, {"metadata": {"finalizers": None}}, **DRY)

    assert "finalizers" not in rehearsed["metadata"]
    assert api.get(path) == marked
    assert alike(api.patch(path, {"metadata": {"finalizers": None}})) == alike(rehearsed)


def test_a_rehearsal_is_refused_for_whatever_refuses_the_real_write(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    stored = api.create(api.claims(mine), claim("one"))
    api.patch(path, {"metadata": {"labels": {"a": "b"}}})

    def refused(method: str, where: str, body: Any = None, **more: Any) -> Refusal:
        real = api.refusal(method, where, body, **more)
        if method == "DELETE" and body:
            rehearsed = api.refusal(method, where, {**body, "dryRun": ["All"]}, **more)
        else:
            rehearsed = api.refusal(method, where, body, **more, **DRY)
        assert rehearsed.reply.body == real.reply.body
        return rehearsed

    with nothing_happens(api, api.claims(mine)):
        assert refused("POST", api.claims(mine), claim("one")).code == 409
        assert refused("POST", api.claims(mine), claim("Bad")).code == 422
        assert refused("PUT", path, stored).code == 409
        assert refused("PUT", f"{path}x", claim("onex")).code == 404
        assert refused("PATCH", path, {"metadata": {"uid": "x"}}, kind=MERGE).code == 422
        assert refused("PATCH", path, {"spec": None}, kind=MERGE).code == 422
        assert refused("DELETE", f"{path}x").code == 404
        assert refused("DELETE", path, {"preconditions": {"uid": "x"}}).code == 409


@pytest.mark.parametrize("values", ["", "all", ["All", "Some"], "true"])
def test_anything_but_all_is_refused(api: Client, mine: str, values: Any) -> None:
    for method, path, body in (
        ("POST", api.claims(mine), claim("one")),
        ("PUT", f"{api.claims(mine)}/one", claim("one")),
        ("DELETE", f"{api.claims(mine)}/one", None),
        ("DELETE", api.claims(mine), None),
    ):
        refusal = api.refusal(method, path, body, dryRun=values)
        assert (refusal.code, "dryRun: Unsupported value" in refusal.message) == (422, True)


def test_all_said_twice_is_all(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"), dryRun=["All", "All"])

    assert api.get(api.claims(mine))["items"] == []


def test_self_link_is_not_stored_and_a_dry_run_shows_it(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/c"
    linked = api.create(api.claims(mine), claim("c"))
    linked["metadata"]["selfLink"] = "/me"

    tried, stored = api.put(path, linked, **DRY), api.put(path, linked)

    assert tried["metadata"]["selfLink"] == "/me"
    assert "selfLink" not in stored["metadata"]
    assert stored["metadata"]["resourceVersion"] == linked["metadata"]["resourceVersion"]
