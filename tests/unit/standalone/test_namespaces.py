"""Namespaces of a stand-alone server: what a create says while they cannot be looked up."""

from __future__ import annotations

from typing import Any, cast

import pytest

from apiserver.admission.core.attributes import Attributes
from apiserver.apimachinery.errors import StatusError
from apiserver.standalone.namespaces import NamespaceAutoProvision, Namespaces
from apiserver.storage.errors import Initializing, Unavailable
from apiserver.storage.store import Store


class Filling:
    """A store whose memory is being filled. `after`: what reading it raises once it has been waited for."""

    def __init__(self, after: Exception | None) -> None:
        self.filling = True
        self._after = after

    async def wait_until_filled(self, *, seconds: float) -> None:
        assert seconds > 0
        self.filling = False

    def view(self) -> dict[str, object]:
        if self.filling:
            raise Initializing(0.0)
        if self._after is not None:
            raise self._after
        return {"known": object()}


class Creating:
    namespace = "new"
    dry_run = False
    operation = "CREATE"


async def admit(store: Filling, create: Any) -> None:
    plugin = NamespaceAutoProvision(Namespaces(cast(Store, store)), create)
    await plugin.admit(cast(Attributes, Creating()))


async def test_create_waits_until_namespaces_are_known() -> None:
    made: list[str] = []

    async def create(name: str) -> None:
        made.append(name)

    await admit(Filling(None), create)
    assert made == ["new"]


async def test_create_gets_503_while_namespaces_cannot_be_read() -> None:
    with pytest.raises(StatusError) as refused:
        await admit(Filling(Initializing(0.0)), None)
    assert refused.value.code == 503


async def test_create_gets_503_when_its_namespace_cannot_be_stored() -> None:
    async def create(_: str) -> None:
        raise Unavailable("the store is not connected")

    with pytest.raises(StatusError) as refused:
        await admit(Filling(None), create)
    assert refused.value.code == 503
