"""Lists that became sets and maps after duplicates had been stored: updates keep, change and add items, here and in kube-apiserver."""

from __future__ import annotations

import copy
import json
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.e2e.controlplane import plane
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import until
from tests.fixtures.definitions import write
from tests.fixtures.server import dev_server

Object = dict[str, Any]
GROUP = "lists.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LISTS = f"/apis/{GROUP}/v1/namespaces/default/lists"
MEDIA = {"MERGE": "merge-patch+json", "JSON": "json-patch+json", "APPLY": "apply-patch+yaml"}
VERBS = ("PUT", *MEDIA)
ITEMS = {
    "set": {"type": "string"},
    "numbers": {"type": "number"},
    "map": {
        "type": "object",
        "required": ["k"],
        "properties": {
            "k": {"type": "string"},
            "d": {"type": "string", "default": "x"},
            "v": {"type": "integer"},
            "w": {"type": "string"},
        },
    },
    "few": {"type": "string"},
}
STORED: dict[str, Sequence[list[Any]]] = {
    "set": (["a", "a"], ["a", "b", "a"], ["a", "b"]),
    "numbers": ([1, 1.0], [1, 2, 1]),
    "map": (
        [{"k": "a"}, {"k": "a"}],
        [{"k": "a", "v": 9}, {"k": "a", "v": 1}],
        [{"k": "a", "v": 9}, {"k": "b", "v": 9}],
        [{"k": "a", "d": "x"}, {"k": "a"}],
    ),
    "few": (["a", "a"], ["a", "a", "a"], ["long one", "long one"], ["a", "b", "c"]),
}
NEW: dict[str, Any] = {"set": "z", "numbers": 77, "map": {"k": "z"}, "few": "z"}


def _definition(*, strict: bool) -> Object:
    """Plain lists; if `strict`, sets and a map, with limits that stored items break."""
    properties: Object = {name: {"type": "array", "items": copy.deepcopy(items)} for name, items in ITEMS.items()}
    if strict:
        for name in ("set", "numbers", "few"):
            properties[name]["x-kubernetes-list-type"] = "set"
        properties["map"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "d"]}
        properties["map"]["items"]["properties"]["v"]["maximum"] = 5
        properties["few"] |= {"maxItems": 2, "items": {"type": "string", "maxLength": 3}}
    spec = {"type": "object", "properties": properties | {"other": {"type": "string"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"lists.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Listing", "plural": "lists", "singular": "listing", "listKind": "ListingList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


class Step(NamedTuple):
    member: str
    stored: list[Any]
    changed: list[Any]
    verb: str


def _steps() -> Iterator[Step]:
    for member, values in STORED.items():
        for stored in values:
            changes = [stored, stored[::-1], [*stored, NEW[member]], stored[:-1], stored + stored[:1]]
            if member == "map":
                changes += [[stored[0] | {"w": "q"}, *stored[1:]], [*stored[:-1], stored[-1] | {"v": 10}]]
            for changed in changes:
                yield from (Step(member, stored, changed, verb) for verb in VERBS)


def _listing(name: str, spec: Object) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Listing", "metadata": {"name": name}, "spec": spec}


class Played:
    """The steps on one server, each with an object of its own that was stored while lists were plain."""

    def __init__(self, user: Connection) -> None:
        self._user = user
        self._stored: list[tuple[Step, Object]] = []

    def store(self) -> None:
        until(lambda: self._user.ask("GET", LISTS).status == 200, "the definition is served")
        for number, step in enumerate(_steps()):
            reply = self._user.ask("POST", LISTS, _listing(f"l{number}", {step.member: step.stored, "other": "1"}))
            assert reply.status == 201, reply.text
            self._stored.append((step, reply.json))

    def answers(self) -> list[tuple[Step, int, Any]]:
        """Wait until lists are sets and maps, then write. kube-apiserver may serve the former definition for a moment."""
        wrong = _listing("wrong", {"set": ["a", "a"]})
        until(lambda: self._user.ask("POST", f"{LISTS}?dryRun=All", wrong).status == 422, "the definition changed")
        return [(step, *self._write(step, stored)) for step, stored in self._stored]

    def _write(self, step: Step, stored: Object) -> tuple[int, Any]:
        name, spec = stored["metadata"]["name"], {step.member: step.changed, "other": "2"}
        path, headers = f"{LISTS}/{name}?fieldManager=m", {}
        body: Any = {"spec": spec}
        if step.verb == "PUT":
            body = stored | body
        elif step.verb == "JSON":
            body = [{"op": "add", "path": f"/spec/{member}", "value": value} for member, value in spec.items()]
        elif step.verb == "APPLY":
            path += "&force=true"
            body = _listing(name, spec)
        if step.verb in MEDIA:
            headers["Content-Type"] = f"application/{MEDIA[step.verb]}"
        reply = self._user.ask("PUT" if step.verb == "PUT" else "PATCH", path, body, headers=headers)
        return reply.status, _comparable(reply.json)


def _comparable(answer: Object) -> Any:
    """Return the members of an answer that two servers can have in common."""
    if answer["kind"] == "Status":
        return answer
    metadata = answer["metadata"]
    managers = sorted(json.dumps(entry | {"time": ""}, sort_keys=True) for entry in metadata["managedFields"])
    return answer["spec"], metadata["generation"], [re.sub(r'"time": "[^"]*"', "", entry) for entry in managers]


def _there(user: Connection) -> list[tuple[Step, int, Any]]:
    path, played = f"{DEFINITIONS}/lists.{GROUP}", Played(user)
    reply = user.ask("POST", DEFINITIONS, _definition(strict=False))
    assert reply.status == 201, reply.text
    played.store()
    patch = {"spec": _definition(strict=True)["spec"]}
    reply = user.ask("PATCH", path, patch, headers={"Content-Type": "application/merge-patch+json"})
    assert reply.status == 200, reply.text
    return played.answers()


def test_duplicates_of_former_lists_are_kept_and_refused_as_by_kube_apiserver(
    tmp_path: pathlib.Path, our_own: None
) -> None:
    with plane.ControlPlane(tmp_path / "plane") as cluster, cluster.connect() as admin:
        release = admin.ask("GET", "/version").json
        expected = _there(admin)
    folder = tmp_path / "dev"
    folder.mkdir()
    file = write(folder / "lists.yaml", _definition(strict=False))
    version = f"--emulated-version={release['major']}.{release['minor']}"
    with dev_server(folder, f"--crds={file}", version) as server, Connection(server.kubeconfig) as user:
        played = Played(user)
        played.store()
        write(file, _definition(strict=True))
        found = played.answers()
    assert {code for _, code, _ in expected} >= {200, 422}
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []
