"""The requests about one definition. kube-apiserver's answers decide which requests follow."""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
from collections.abc import Mapping
from typing import Any, Protocol

from tests.e2e.crds.drawing import Drawer, Object, Schema
from tests.e2e.crds.repairing import repaired
from tests.e2e.crds.spoiling import spoiled
from tests.fixtures.server import Reply

NAMESPACE = "default"
LIVE = "<live>"
"""As a resourceVersion: that of the last answer of each server about the object."""
ROUNDS = 8
MERGE, JSON_PATCH, APPLY = "merge-patch+json", "json-patch+json", "apply-patch+yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_NAMED = re.compile(r"self\.metadata\.name\s*==\s*['\"]([\w.-]+)['\"]|self\.metadata\.name in \[['\"]([\w.-]+)['\"]")


class Servers(Protocol):
    """Both servers."""

    def ask(self, topic: str, method: str, path: str, body: Any = None, *, kind: str = "", accept: str = "") -> Reply:
        """Ask both, compare their answers, and return that of kube-apiserver. `kind` is the form of a patch."""
        ...


class Play:
    """The requests about the objects of one definition."""

    def __init__(self, servers: Servers, definition: Object, seed: str) -> None:
        self.servers = servers
        self.spec: Mapping[str, Any] = definition["spec"]
        self.draw = random.Random(seed)
        self.drawer = Drawer(self.draw)
        self.numbers = itertools.count()

    def run(self, objects: int) -> None:
        """Ask about `objects` objects in each version."""
        served = [version for version in self.spec["versions"] if version["served"]]
        if self.spec.get("conversion", {}).get("strategy") == "Webhook":
            served = [version for version in served if version["storage"]]
        for version in served:
            for _ in range(objects):
                self.life(version, [other for other in served if other is not version])
            self.lists(version)
        for version in served[:1]:
            self.servers.ask("delete", "DELETE", f"{self.path(version)}?labelSelector=tour=yes")
            self.servers.ask("list", "GET", self.path(version))

    def path(self, version: Mapping[str, Any], name: str = "") -> str:
        scope = f"/namespaces/{NAMESPACE}" if self.spec["scope"] == "Namespaced" else ""
        path = f"/apis/{self.spec['group']}/{version['name']}{scope}/{self.spec['names']['plural']}"
        return f"{path}/{name}" if name else path

    def schema(self, version: Mapping[str, Any]) -> Schema:
        found: Schema = version.get("schema", {}).get("openAPIV3Schema", {})
        return found

    def drawn(self, version: Mapping[str, Any], name: str, likely: float) -> Object:
        value = self.drawer.value(self.schema(version), likely)
        metadata: Object = {"name": name}
        if self.draw.random() < 0.5:
            metadata["labels"] = {"tour": "yes", "n": name}
        if self.draw.random() < 0.2:
            metadata["annotations"] = {"tour/note": "a b"}
        typed = {"apiVersion": f"{self.spec['group']}/{version['name']}", "kind": self.spec["names"]["kind"]}
        return {**(value if isinstance(value, dict) else {}), **typed, "metadata": metadata}

    # One object

    def life(self, version: Mapping[str, Any], others: list[Mapping[str, Any]]) -> None:
        ask = self.servers.ask
        name = f"o{next(self.numbers)}"
        made = self.created(version, name)
        if made is None:
            return
        name = made["metadata"]["name"]
        path = self.path(version, name)
        ask("get", "GET", path)
        for other in others:
            ask("get", "GET", self.path(other, name))
        live = self.updated(version, path, made)
        self.patched(version, path, live)
        self.applied(version, path, live)
        subresources = version.get("subresources", {})
        if "status" in subresources:
            self.status(version, path, live)
        if "scale" in subresources:
            self.scaled(version, path)
        self.spoils(version, path, live)
        for other in others[:1]:
            self.written_in(other, name)
        ask("table", "GET", path, accept=TABLE)
        if self.draw.random() < 0.5:
            ask("delete", "DELETE", path)
            ask("get", "GET", path)

    def created(self, version: Mapping[str, Any], name: str) -> Object | None:
        """An object that kube-apiserver has accepted, as it was sent."""
        schema = self.schema(version)
        body = self.drawn(version, name, self.draw.choice([0.15, 0.4, 0.8]))
        if named := _NAMED.search(json.dumps(schema.get("x-kubernetes-validations", [])).replace("\\", "")):
            body["metadata"]["name"] = named[1] or named[2]
        for attempt in range(ROUNDS):
            reply = self.servers.ask("create", "POST", self.path(version), body)
            if reply.status == 201:
                return body
            causes = _causes(reply)
            if not causes:
                return None
            body = repaired(body, causes, schema, self.drawer, attempt)
        return None

    def updated(self, version: Mapping[str, Any], path: str, live: Object) -> Object:
        """PUT other values, repaired until kube-apiserver accepts them."""
        schema = self.schema(version)
        body = self.drawn(version, live["metadata"]["name"], self.draw.choice([0.2, 0.5]))
        if "spec" in live and self.draw.random() < 0.5:
            kept = copy.deepcopy(live)
            if isinstance(kept.get("spec"), dict) and isinstance(body.get("spec"), dict):
                for member in self.draw.sample(sorted(body["spec"]), min(2, len(body["spec"]))):
                    kept["spec"][member] = body["spec"][member]
            body = kept
        body["metadata"]["resourceVersion"] = LIVE
        for attempt in range(ROUNDS):
            reply = self.servers.ask("update", "PUT", path, body)
            if reply.status == 200:
                return body
            causes = _causes(reply)
            if not causes:
                return live
            body = repaired(body, causes, schema, self.drawer, attempt)
        self.servers.ask("update", "PUT", path, {**live, "metadata": {**live["metadata"], "resourceVersion": LIVE}})
        return live

    def patched(self, version: Mapping[str, Any], path: str, live: Object) -> None:
        ask = self.servers.ask
        other = self.drawn(version, live["metadata"]["name"], 0.3)
        members = [name for name in other if name not in ("apiVersion", "kind", "metadata")]
        for member in self.draw.sample(members, min(2, len(members))):
            value = other[member]
            if isinstance(value, dict) and value:
                value = {name: value[name] for name in self.draw.sample(sorted(value), min(2, len(value)))}
            ask("merge patch", "PATCH", path, {member: value}, kind=MERGE)
        ask("merge patch", "PATCH", path, {"metadata": {"labels": {"patched": "yes"}}}, kind=MERGE)
        spec = live.get("spec")
        if isinstance(spec, dict) and spec:
            member = self.draw.choice(sorted(spec))
            place = f"/spec/{member.replace('~', '~0').replace('/', '~1')}"
            ask("merge patch", "PATCH", path, {"spec": {member: None}}, kind=MERGE)
            ask("JSON patch", "PATCH", path, [{"op": "add", "path": place, "value": spec[member]}], kind=JSON_PATCH)
            ask("JSON patch", "PATCH", path, [{"op": "test", "path": place, "value": 7}], kind=JSON_PATCH)
            ask("JSON patch", "PATCH", f"{path}?dryRun=All", [{"op": "remove", "path": place}], kind=JSON_PATCH)
        ask("get", "GET", path)

    def applied(self, version: Mapping[str, Any], path: str, live: Object) -> None:
        """Apply as two managers: to the object, and to a new one."""
        ask = self.servers.ask
        body = {**live, "metadata": {"name": live["metadata"]["name"], "labels": {"tour": "yes"}}}
        ask("apply", "PATCH", f"{path}?fieldManager=one", body, kind=APPLY)
        ask("apply", "PATCH", f"{path}?fieldManager=one&force=true", body, kind=APPLY)
        other = self.drawn(version, live["metadata"]["name"], 0.3)
        ask("apply", "PATCH", f"{path}?fieldManager=two", other, kind=APPLY)
        if isinstance(spec := live.get("spec"), dict):
            kept = {name: spec[name] for name in sorted(spec) if self.draw.random() < 0.6}
            ask("apply", "PATCH", f"{path}?fieldManager=two", {**body, "spec": kept}, kind=APPLY)
            ask("apply", "PATCH", f"{path}?fieldManager=two&force=true", {**body, "spec": {}}, kind=APPLY)
            ask("apply", "PATCH", f"{path}?fieldManager=one&force=true", {**body, "spec": kept}, kind=APPLY)
        new = f"{live['metadata']['name']}-a"
        at = self.path(version, new)
        body = {**live, "metadata": {"name": new, "labels": {"tour": "yes"}}}
        ask("apply", "PATCH", f"{at}?fieldManager=one", body, kind=APPLY)
        ask("apply", "PATCH", f"{at}?fieldManager=two", body, kind=APPLY)
        ask("apply", "PATCH", f"{at}?fieldManager=two", {**body, "spec": {}}, kind=APPLY)
        ask("get", "GET", at)

    def status(self, version: Mapping[str, Any], path: str, live: Object) -> None:
        ask = self.servers.ask
        schema = self.schema(version)
        about = schema.get("properties", {}).get("status", {})
        body = {**live, "metadata": {"name": live["metadata"]["name"], "resourceVersion": LIVE}}
        body["status"] = self.drawer.value(about, 0.5, 1)
        for attempt in range(4):
            reply = ask("status", "PUT", f"{path}/status", body)
            causes = _causes(reply)
            if not causes:
                break
            body = repaired(body, causes, schema, self.drawer, attempt)
        ask("status", "PATCH", f"{path}/status", {"status": self.drawer.value(about, 0.2, 1)}, kind=MERGE)
        sent = {name: body[name] for name in ("apiVersion", "kind", "status") if name in body}
        ask("status", "PATCH", f"{path}/status?fieldManager=three&force=true", sent, kind=APPLY)
        wrong = spoiled({"status": body.get("status")}, schema, self.draw)
        ask("status", "PATCH", f"{path}/status", wrong, kind=MERGE)
        ask("status", "GET", f"{path}/status")

    def scaled(self, version: Mapping[str, Any], path: str) -> None:
        ask = self.servers.ask
        name = path.rpartition("/")[2]
        ask("scale", "GET", f"{path}/scale")
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": 3}}
        if self.spec["scope"] == "Namespaced":
            scale["metadata"]["namespace"] = NAMESPACE  # type: ignore[index]
        ask("scale", "PUT", f"{path}/scale", scale)
        ask("scale", "PATCH", f"{path}/scale", {"spec": {"replicas": self.draw.choice([0, 2, -1, "x"])}}, kind=MERGE)
        ask("scale", "GET", f"{path}/scale")

    def spoils(self, version: Mapping[str, Any], path: str, live: Object) -> None:
        """Wrong objects. Dry runs, so that no later answer depends on them."""
        ask = self.servers.ask
        schema = self.schema(version)
        collection = self.path(version)
        name = f"{live['metadata']['name']}-s"
        for number in range(6):
            body = spoiled(live, schema, self.draw)
            if self.draw.random() < 0.3:
                body = spoiled(body, schema, self.draw)
            checked = self.draw.choice(["", "&fieldValidation=Strict", "&fieldValidation=Ignore"])
            match number % 4:
                case 0 | 1:
                    ask("spoil", "POST", f"{collection}?dryRun=All{checked}", {**body, "metadata": {"name": name}})
                case 2:
                    body["metadata"] = {**live["metadata"], "resourceVersion": LIVE}
                    ask("spoil", "PUT", f"{path}?dryRun=All{checked}", body)
                case 3:
                    sent = {key: body[key] for key in body if key not in ("apiVersion", "kind", "metadata")}
                    ask("spoil", "PATCH", f"{path}?dryRun=All{checked}", sent, kind=MERGE)
        body = {**spoiled(live, schema, self.draw), "metadata": {"name": live["metadata"]["name"]}}
        ask("spoil", "PATCH", f"{path}?dryRun=All&fieldManager=four&force=true", body, kind=APPLY)

    def written_in(self, version: Mapping[str, Any], name: str) -> None:
        """Write an object in another version than the one that created it."""
        path = self.path(version, name)
        self.servers.ask("merge patch", "PATCH", path, {"metadata": {"labels": {"other": "yes"}}}, kind=MERGE)
        body = self.drawn(version, name, 0.3)
        body["metadata"]["resourceVersion"] = LIVE
        self.servers.ask("update", "PUT", path, body)
        self.servers.ask("apply", "PATCH", f"{path}?fieldManager=one&force=true", {**body, "metadata": {}}, kind=APPLY)

    # All objects

    def lists(self, version: Mapping[str, Any]) -> None:
        ask = self.servers.ask
        path = self.path(version)
        ask("list", "GET", path)
        ask("list", "GET", f"{path}?limit=1")
        ask("list", "GET", f"{path}?labelSelector=tour%3Dyes")
        ask("list", "GET", path, accept=PARTIAL_LIST)
        ask("table", "GET", path, accept=TABLE)
        ask("table", "GET", f"{path}?includeObject=None", accept=TABLE)
        for field in version.get("selectableFields", ()):
            ask("list", "GET", f"{path}?fieldSelector={field['jsonPath'].removeprefix('.')}%3Da")
            ask("list", "GET", f"{path}?fieldSelector={field['jsonPath'].removeprefix('.')}%21%3Da")


def _causes(reply: Reply) -> list[Mapping[str, str]]:
    """The causes of a refusal for its values, none otherwise."""
    if reply.status != 422:
        return []
    causes: list[Mapping[str, str]] = (reply.json.get("details") or {}).get("causes") or []
    return causes
