"""The table of cases for the four kinds, run against their shapes and hooks, and over HTTP against servers with the gates of each case.

Each case was run against a real kube-apiserver of its release and holds there.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from apiserver import resources
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.releases import NEWEST, SUPPORTED, Release, at
from apiserver.cluster.namespaces import Namespaces
from apiserver.codecs.objects import canonical, decoding, defaults
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object, Resource, Subresource
from apiserver.storage.store import Write
from apiserver.validation import verdict
from apiserver.verbs import lifecycle
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision
from tests.fixtures.cases import each_case
from tests.fixtures.composed import Composed, composed
from tests.fixtures.connection import Answer
from tests.fixtures.valkey import Server, shared_server
from tests.promises import resource_table
from tests.promises.resource_table import NAMESPACE, Case, Expected

__all__ = ["shared_server"]

NOW = "2026-06-01T12:00:00Z"
HERE = pathlib.Path(__file__).resolve().parent
KINDS = {release: {kind.kind: at(release, kind) for kind in resources.RESOURCES} for release in SUPPORTED}
KEPT = ("resourceVersion", "uid", "creationTimestamp", "generation")
"""Members that a writer has read of an object."""

Found = tuple[str, str, str]
"""An error: its field, its reason, its text."""


@pytest.fixture(scope="session")
def tables(shared: pathlib.Path) -> dict[Release, dict[str, Case]]:
    return {release: {case.name: case for case in resource_table.read(shared, release)} for release in SUPPORTED}


def names() -> list[tuple[Release, str]]:
    """The names are needed before fixtures exist; the project's own copy has the same ones."""
    return [
        (release, case.name) for release in SUPPORTED for case in resource_table.read(HERE.parent / "cases", release)
    ]


def decoded(resource: Resource, sent: dict[str, Any]) -> Object:
    value = {k: v for k, v in json.loads(json.dumps(sent)).items() if k not in ("kind", "apiVersion")}
    found = decoding.decode(resource.shape, value)
    assert found.unknown == []
    defaults.apply(resource.shape, found.object, now=NOW)
    return found.object


def stored(resource: Resource, case: Case) -> Object:
    assert case.old is not None
    old = decoded(resource, case.old)
    system = {"uid": "0b6d53b0-0000-4000-8000-000000000001", "creationTimestamp": NOW, "resourceVersion": "7"}
    old["metadata"] = system | old["metadata"]
    return old


def run(release: Release, case: Case, *, known: bool = False) -> tuple[Object, list[FieldError], list[str]]:
    """`known`: what is stored was found in order before."""
    resource = KINDS[release][case.kind]
    declared = [gate for kind in KINDS[release].values() for gate in kind.gates]
    gates = Gates((*declared, *resources.GATES), case.gates, release=release)
    context = Context(
        gates=gates,
        namespace_labels=lambda: case.namespace_labels,
        cel=resources.DeviceSelectors(gates),
        old_obeys=known,
    )
    new = decoded(resource, case.object)
    if case.operation == "create":
        base = new["metadata"].get("generateName")
        if base and not new["metadata"].get("name"):
            new["metadata"]["name"] = f"{base}x7k2p"
        return judged(context, resource, new, None)
    old = stored(resource, case)
    for name in KEPT:
        lifecycle.restore(new["metadata"], old["metadata"], name)
    sub = resource.subresource("status") if case.operation == "status" else None
    return judged(context, resource, new, old, sub=sub)


def judged(
    context: Context, resource: Resource, new: Object, old: Object | None, *, sub: Subresource | None = None
) -> tuple[Object, list[FieldError], list[str]]:
    """The verdict on a write, and the errors of a refused one."""
    if lifecycle.prepare_and_judge(context, resource, new, old, sub=sub).acceptable:
        return new, [], list(resource.warnings(context, new, old))
    return new, lifecycle.errors_of(context, resource, new, old, sub=sub), []


def matches(error: Found, expected: Expected) -> bool:
    field, reason, text = error
    return (field, reason) == (expected.field, expected.reason) and expected.detail in text


def check_errors(found: Iterable[Found], expected: tuple[Expected, ...]) -> None:
    distinct = list(dict.fromkeys(found))
    shown = "\n".join(f"{reason} {field}: {text}" for field, reason, text in distinct)
    assert all(any(matches(error, e) for error in distinct) for e in expected), f"missing among:\n{shown}"
    assert all(any(matches(error, e) for e in expected) for error in distinct), f"too much:\n{shown}"
    assert len(distinct) >= len(set(expected)), shown


def check_warnings(found: list[str], case: Case) -> None:
    assert len(found) == len(case.warnings), found
    assert all(any(text in warning for warning in found) for text in case.warnings), found


def check_then(served: Any, wanted: Mapping[str, Any]) -> None:
    try:
        value = resource_table.look(served, wanted["path"])
    except (KeyError, IndexError):
        assert wanted.get("absent"), f"{wanted['path']} is missing"
        return
    assert not wanted.get("absent"), f"{wanted['path']} is there: {value!r}"
    if "equals" in wanted:
        assert value == wanted["equals"]


def obeys(resource: Resource, old: Object) -> bool:
    passes = verdict.test(resource.shape)
    return passes is None or passes(old)


@each_case(("release", "name"), names(), ids=str)
def test_a_case_of_the_table_holds(release: Release, name: str, tables: dict[Release, dict[str, Case]]) -> None:
    case = tables[release][name]
    resource = KINDS[release][case.kind]
    new, errors, warnings = run(release, case)
    if case.operation == "update" and obeys(resource, stored(resource, case)):
        assert run(release, case, known=True) == (new, errors, warnings)
    check_errors([(e.field, e.reason, e.body) for e in errors], case.errors)
    check_warnings(warnings, case)
    if not case.errors:
        served = json.loads(canonical.encode(resource.shape, new))
        for wanted in case.then:
            check_then(served, wanted)


# --- Over HTTP -------------------------------------------------------------------------------------------------------


class OneNamespace(Namespaces):
    """A cluster of one namespace, whose labels are those that the case names."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()
        self.of_the_case: Mapping[str, str] = {}

    @property
    def ready(self) -> asyncio.Event:
        return self.synced

    def lookup(self, name: str) -> dict[str, Any] | None:
        return {"metadata": {"name": name, "labels": dict(self.of_the_case)}} if name == NAMESPACE else None

    async def ask(self, name: str) -> dict[str, Any] | None:
        return self.lookup(name)


async def answered(server: Composed, release: Release, case: Case) -> Answer:
    """The server's answer to the case's request. Stored objects are deleted afterwards."""
    resource = KINDS[release][case.kind]
    store = server.stores[f"{server.group}/{resource.plural}"]
    within = f"namespaces/{NAMESPACE}/" if resource.namespaced else ""
    path, method = f"{server.v1}/{within}{resource.plural}", "POST"
    sent = {**case.object, "apiVersion": f"{server.group}/v1"}
    if case.operation != "create":
        old = stored(resource, case)
        name, namespace = old["metadata"]["name"], old["metadata"].get("namespace", "")
        value = canonical.encode(resource.shape, old)
        entry = await store.commit(
            Write(keys.key(namespace, name), value, Revision(0), old["metadata"]["uid"]), dry_run=False
        )
        read = json.loads(entry.body)["metadata"]
        sent["metadata"] = sent["metadata"] | {member: read[member] for member in KEPT if member in read}
        path, method = f"{path}/{name}{'/status' if case.operation == 'status' else ''}", "PUT"
    try:
        # Without blanks, as it is stored: they count in raw JSON.
        return await server.ask(method, path, json.dumps(sent, separators=(",", ":")).encode())
    finally:
        for left in list(store.view().scan()):
            uid = json.loads(left.body)["metadata"]["uid"]
            await store.commit(Write(left.key, None, left.revision, uid), dry_run=False)


def check_answer(answer: Answer, case: Case) -> None:
    said = answer.json
    causes = [(c["field"], c["reason"], c["message"]) for c in said.get("details", {}).get("causes", [])]
    check_errors(causes, case.errors)
    check_warnings([text.replace('\\"', '"') for text in answer.headers.getall("Warning", [])], case)
    if case.errors:
        assert (answer.status, said["reason"]) == (422, "Invalid"), answer.text
        return
    assert answer.status == (201 if case.operation == "create" else 200), answer.text
    for wanted in case.then:
        check_then(said, wanted)


def gate_sets() -> list[tuple[Release, str]]:
    """Releases and feature gates of the servers, so that each case finds its own."""
    cases = [(release, case) for release in SUPPORTED for case in resource_table.read(HERE.parent / "cases", release)]
    return sorted({(release, flag_of(case)) for release, case in cases})


def flag_of(case: Case) -> str:
    return ",".join(f"{name}={'true' if on else 'false'}" for name, on in sorted(case.gates.items()))


@pytest.mark.parametrize(("release", "gates"), gate_sets(), ids=str)
async def test_the_cases_of_the_table_hold_over_http(
    release: Release, gates: str, tables: dict[Release, dict[str, Case]], shared_server: Server
) -> None:
    namespaces = OneNamespace()
    failed: dict[str, str] = {}
    flags = (f"--emulated-version={release}", f"--feature-gates={gates}")
    async with composed(shared_server, *flags, namespaces=namespaces) as server:
        for case in tables[release].values():
            if flag_of(case) != gates:
                continue
            namespaces.of_the_case = case.namespace_labels
            answer = await answered(server, release, case)
            try:
                check_answer(answer, case)
            except AssertionError as e:
                failed[case.name] = str(e)
    assert not failed, "\n\n".join(f"{name}: {why}" for name, why in failed.items())


async def test_only_what_this_process_found_in_order_is_not_looked_at_again(shared_server: Server) -> None:
    async with composed(shared_server, "--emulated-version=1.36") as server:
        slices = f"{server.v1}/resourceslices"

        def a_slice(device: str, **labels: str) -> Object:
            pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": "d.example.com", "nodeName": "n1", "pool": pool, "devices": [{"name": device}]}
            return {"metadata": {"name": "s", "labels": labels}, "spec": spec}

        resource = KINDS[NEWEST]["ResourceSlice"]
        metadata = {"name": "s", "uid": "0b6d53b0-0000-4000-8000-000000000001", "creationTimestamp": NOW}
        value = canonical.encode(resource.shape, decoded(resource, a_slice("Not_A_Label") | {"metadata": metadata}))
        store = server.stores[f"{server.group}/{resource.plural}"]
        await store.commit(Write(keys.key("", "s"), value, Revision(0), metadata["uid"]), dry_run=False)

        async def put(device: str, **labels: str) -> int:
            return (await server.ask("PUT", f"{slices}/s", a_slice(device, **labels))).status

        assert await put("Not_A_Label", a="1") == 422
        assert await put("Not_A_Label", a="2") == 422
        assert await put("gpu", a="1") == 200
        assert await put("gpu", a="2") == 200
        assert await put("Not_A_Label", a="2") == 422
        assert await put("gpu", a="3") == 200
