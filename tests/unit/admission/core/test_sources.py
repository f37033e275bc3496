"""Copies of configurations, and results that plugins derive from them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from apiserver.admission.core import sources
from apiserver.admission.core.sources import Derived, synced
from apiserver.apimachinery.errors import StatusError
from tests.unit.admission.core.test_chain import attributes


class Known:
    """A source that a test changes."""

    def __init__(self, **items: Mapping[str, Any]) -> None:
        self.items = items
        self.version = 0
        self.ready = asyncio.Event()

    def put(self, name: str, item: Mapping[str, Any]) -> None:
        self.items[name] = item
        self.version += 1


def test_result_of_sources_is_made_once_for_each_of_their_versions() -> None:
    made: list[list[str]] = []

    def names(*items: Mapping[str, Any]) -> list[str]:
        made.append([name for each in items for name in each])
        return made[-1]

    first, second = Known(a={}), Known(b={})
    derived = Derived(names, first, second)
    assert made == [], "nothing is made before it is needed"
    assert derived.current() is derived.current()
    second.put("c", {})
    assert derived.current() == ["a", "b", "c"]
    first.put("a", {"changed": True})
    derived.current()
    assert len(made) == 3


async def test_change_waits_for_an_unlisted_kind_and_is_refused_if_it_never_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed, later = Known(), Known()
    listed.ready.set()
    await synced(attributes(), listed)
    waiting = asyncio.create_task(synced(attributes(), listed, later))
    await asyncio.sleep(0)
    assert not waiting.done()
    later.ready.set()
    await waiting
    monkeypatch.setattr(sources, "READY_SECONDS", 0.01)
    change = attributes()
    change.object = None
    with pytest.raises(StatusError) as refused:
        await synced(change, listed, Known())
    assert (refused.value.code, str(refused.value)) == (
        403,
        'resourceclaims.things.example.com "c" is forbidden: not yet ready to handle request',
    )
