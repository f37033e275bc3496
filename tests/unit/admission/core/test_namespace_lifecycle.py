"""Creations and changes in a namespace that exists, is missing, or is being deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from apiserver.admission.core import sources
from apiserver.admission.core.attributes import Operation
from apiserver.admission.core.namespace_lifecycle import NamespaceLifecycle
from apiserver.apimachinery.errors import StatusError
from apiserver.cluster.errors import ClusterError
from apiserver.schema.resource import Object
from tests.unit.admission.changes import GROUP, Namespaces, change

ACTIVE, TERMINATING = {"status": {"phase": "Active"}}, {"status": {"phase": "Terminating"}}


class Rig:
    """The plugin, with a pause in which a test's event happens."""

    def __init__(self, namespaces: Namespaces, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.namespaces = namespaces
        self.pauses: list[float] = []
        self._meanwhile = meanwhile
        self._plugin = NamespaceLifecycle(namespaces, pause=self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._meanwhile()

    async def admit(
        self,
        operation: Operation = "CREATE",
        *,
        namespace: str = "ns",
        plural: str = "resourceclaims",
        metadata: Object | None = None,
        name: str = "c",
    ) -> None:
        obj: Object = {"metadata": {"name": name} if metadata is None else metadata}
        proposed = change(operation, plural=plural, namespace=namespace, name=name, new=obj, old=obj)
        assert await self._plugin.admit(proposed) is None

    async def refused(self, operation: Operation = "CREATE", **how: Any) -> StatusError:
        with pytest.raises(StatusError) as caught:
            await self.admit(operation, **how)
        return caught.value


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
async def test_active_namespace_permits_everything_without_a_question(operation: Operation) -> None:
    rig = Rig(Namespaces({"ns": ACTIVE}))
    await rig.admit(operation)
    assert (rig.namespaces.asked, rig.pauses) == ([], [])


@pytest.mark.parametrize("known", [{}, {"status": {}}, {"status": None}])
async def test_a_namespace_without_a_phase_is_there(known: Mapping[str, Any]) -> None:
    await Rig(Namespaces({"ns": known})).admit()


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
async def test_change_outside_namespaces_passes(operation: Operation) -> None:
    rig = Rig(Namespaces())
    await rig.admit(operation, namespace="", plural="deviceclasses")
    assert (rig.namespaces.asked, rig.pauses) == ([], [])


@pytest.mark.parametrize("namespaces", [Namespaces, lambda: Namespaces({"ns": TERMINATING})])
async def test_deletions_pass_whatever_the_namespace(namespaces: Callable[[], Namespaces]) -> None:
    rig = Rig(namespaces())
    await rig.admit("DELETE")
    assert rig.namespaces.asked == []


async def test_nothing_is_created_in_a_namespace_that_is_being_deleted() -> None:
    error = await Rig(Namespaces({"ns": TERMINATING})).refused()
    assert error.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'resourceclaims.{GROUP} "c" is forbidden: '
        "unable to create new content in namespace ns because it is being terminated",
        "reason": "Forbidden",
        "details": {
            "name": "c",
            "group": GROUP,
            "kind": "resourceclaims",
            "causes": [
                {
                    "reason": "NamespaceTerminating",
                    "message": "namespace ns is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        },
        "code": 403,
    }


async def test_updates_in_a_namespace_that_is_being_deleted_pass() -> None:
    await Rig(Namespaces({"ns": TERMINATING})).admit("UPDATE")


@pytest.mark.parametrize(
    ("metadata", "shown"),
    [
        ({"name": "own"}, "own"),
        ({"name": "", "generateName": "pre-"}, "pre-"),
        ({"generateName": "pre-"}, "pre-"),
        ({}, "Unknown"),
    ],
)
async def test_refused_object_without_a_name_is_called_by_its_best_name(metadata: Object, shown: str) -> None:
    error = await Rig(Namespaces({"ns": TERMINATING})).refused(name="", metadata=metadata)
    assert error.message.startswith(f'resourceclaims.{GROUP} "{shown}" is forbidden: ')
    assert (error.details or {})["name"] == shown


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_unknown_namespace_is_not_found(operation: Operation) -> None:
    rig = Rig(Namespaces())
    error = await rig.refused(operation)
    assert (error.code, error.reason, error.message) == (404, "NotFound", 'namespaces "ns" not found')
    assert error.details == {"name": "ns", "kind": "namespaces"}
    assert rig.namespaces.asked == ["ns"]
    assert rig.pauses == ([0.05] if operation == "CREATE" else [])


async def test_a_namespace_that_appears_during_the_second_look_is_there() -> None:
    namespaces = Namespaces()
    rig = Rig(namespaces, meanwhile=lambda: namespaces.known.update(ns=ACTIVE))
    await rig.admit()
    assert (namespaces.asked, rig.pauses) == ([], [0.05])


async def test_one_that_appears_there_on_its_way_out_is_closed() -> None:
    namespaces = Namespaces()
    assert (await Rig(namespaces, meanwhile=lambda: namespaces.known.update(ns=TERMINATING)).refused()).code == 403


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_kube_apiservers_answer_counts_when_the_watch_is_behind(operation: Operation) -> None:
    rig = Rig(Namespaces(live={"ns": ACTIVE}))
    await rig.admit(operation)
    assert rig.namespaces.asked == ["ns"]


async def test_phase_from_kube_apiserver_counts_too() -> None:
    assert (await Rig(Namespaces(live={"ns": TERMINATING})).refused()).code == 403
    await Rig(Namespaces(live={"ns": TERMINATING})).admit("UPDATE")


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_a_question_that_fails_is_an_internal_error(operation: Operation) -> None:
    namespaces = Namespaces()
    namespaces.error = ClusterError("connection refused")
    error = await Rig(namespaces).refused(operation)
    assert (error.code, error.reason) == (500, "InternalError")
    assert error.message == "Internal error occurred: connection refused"


async def test_a_known_namespace_does_not_depend_on_kube_apiserver() -> None:
    namespaces = Namespaces({"ns": ACTIVE})
    namespaces.error = ClusterError("connection refused")
    await Rig(namespaces).admit()


async def test_before_the_first_list_a_change_waits_for_it() -> None:
    namespaces = Namespaces()
    namespaces.ready.clear()
    rig = Rig(namespaces)
    waiting = asyncio.ensure_future(rig.admit())
    await asyncio.sleep(0)
    assert not waiting.done()
    namespaces.known["ns"] = ACTIVE
    namespaces.ready.set()
    await waiting
    assert (namespaces.asked, rig.pauses) == ([], [])


async def test_a_first_list_that_does_not_come_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "READY_SECONDS", 0)
    namespaces = Namespaces({"ns": ACTIVE})
    namespaces.ready.clear()
    error = await Rig(namespaces).refused("UPDATE")
    assert (error.code, error.message) == (
        403,
        f'resourceclaims.{GROUP} "c" is forbidden: not yet ready to handle request',
    )
    await Rig(namespaces).admit("DELETE")
