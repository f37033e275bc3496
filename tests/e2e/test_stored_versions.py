"""A definition whose stored version changes while a webhook converts: objects keep the version in which they were stored."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from tests.e2e.controlplane import plane
from tests.e2e.controlplane.connection import Stream
from tests.e2e.controlplane.plane import until
from tests.e2e.lamps import APPLY, DEFINITIONS, JSON_PATCH, MERGE, NAMESPACE, V1, V2, Server, here
from tests.fixtures.conversion_hook import Hook, Object
from tests.fixtures.definitions import write
from tests.fixtures.lamps import GROUP, convert, definition, lamp

PROJECT = pathlib.Path(__file__).resolve().parents[2]
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
INITIAL = "watch=1&timeoutSeconds=3&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
UNSAFE = {"kind": "DeleteOptions", "apiVersion": "v1", "ignoreStoreReadErrorWithClusterBreakingPotential": True}
LAMP = f"{DEFINITIONS}/lamps.{GROUP}"
Store = Callable[..., None]
"""Stores new objects in a version from now on. `only`: the definition has no other."""
Step = tuple[str, int, Any]


def made(hook: Hook, stored: str, *, only: bool = False) -> Object:
    found = definition(hook.conversion(), stored=stored)
    if only:
        found["spec"]["versions"] = [each for each in found["spec"]["versions"] if each["name"] == stored]
    return found


def wait_until_stored(server: Server, version: str, *, only: bool = False) -> None:
    """Wait until discovery says that another version is stored, and the other one has gone."""
    other = "v1" if version == "v2" else "v2"
    path = f"/apis/{GROUP}/{version}"

    def published() -> bool:
        found = server.ask("GET", path)
        lamps = [each for each in found.json["resources"] if each["name"] == "lamps"] if found.status == 200 else []
        return bool(lamps) and lamps[0]["storageVersionHash"] == version_hash(version)

    until(published, f"{version} is stored")
    if only:
        until(lambda: server.ask("GET", f"/apis/{GROUP}/{other}/lamps").status == 404, f"{other} is removed")
    else:
        for collection in (V1, V2):
            until(lambda collection=collection: server.ask("GET", collection).status == 200, "lists are served")  # type: ignore[misc]


def version_hash(version: str) -> str:
    """The storageVersionHash of lamps."""
    return base64.b64encode(hashlib.sha256(f"{GROUP}/{version}/Lamp".encode()).digest()[:8]).decode()


def upstream(server: Server) -> Store:
    def store(version: str, *, only: bool = False) -> None:
        if only:  # kube-apiserver keeps a version that may be stored, until its administrator says that none is
            present = server.ask("GET", LAMP).json
            present["status"]["storedVersions"] = [version]
            assert server.ask("PUT", f"{LAMP}/status", present).status == 200
        present = server.ask("GET", LAMP).json
        reply = server.ask("PUT", LAMP, {**made(server.hook, version, only=only), "metadata": present["metadata"]})
        assert reply.status == 200, reply.text
        wait_until_stored(server, version, only=only)
        if only:  # its former handler may serve for a moment; the new one cannot read `three`
            until(lambda: server.ask("GET", f"{V2}/three").status == 500, "the new handler serves")

    return store


def following(server: Server, file: pathlib.Path) -> Store:
    def store(version: str, *, only: bool = False) -> None:
        write(file, made(server.hook, version, only=only))
        wait_until_stored(server, version, only=only)

    return store


def played(server: Server, store: Store) -> Iterator[Step]:
    """Yield each step with its answer."""
    ask = server.shown
    for name in ("one", "four", "five", "six", "seven", "eight", "nine"):
        yield "create in v1", *ask("POST", V1, lamp("v1", name, watt=7, onlyv1="x"))
    yield "create in v2", *ask("POST", V2, lamp("v2", "two", lumen=50, onlyv2="x"))
    yield "create with defaults", *ask("POST", V1, lamp("v1", "three"))
    store("v2")
    for path in (V1, V2):
        for name in ("one", "two", "three"):
            yield "get", *ask("GET", f"{path}/{name}")
        yield "list", *ask("GET", path)
        yield "table", *ask("GET", path, headers=TABLE)
        yield "page", *ask("GET", f"{path}?limit=4")[:1], None
        yield "watch", 200, initial(server, path)
    for selector in ("spec.lumen=70", "spec.lumen=50", "spec.watt=7"):
        yield selector, *ask("GET", f"{V2}?fieldSelector={selector.replace('=', '%3D')}")
    yield "scale", *ask("GET", f"{V2}/one/scale")
    for path, name in ((V2, "one"), (V1, "two"), (V2, "two")):
        found = server.ask("GET", f"{path}/{name}").json
        yield "write without change", *ask("PUT", f"{path}/{name}", found)
        yield "it is written", moved(server, found, f"{path}/{name}"), None
    yield "merge", *ask("PATCH", f"{V2}/four?fieldManager=m", {"spec": {"mode": "dim"}}, MERGE)
    replaced = [{"op": "replace", "path": "/spec/watt", "value": 8}]
    yield "JSON patch", *ask("PATCH", f"{V1}/four?fieldManager=m", replaced, JSON_PATCH)
    yield "dry run", *ask("PATCH", f"{V2}/five?dryRun=All&fieldManager=m", {"spec": {"lumen": 300}}, MERGE)
    yield "apply", *ask("PATCH", f"{V2}/five?fieldManager=app&force=true", lamp("v2", "five", lumen=400), APPLY)
    yield "apply in v1", *ask("PATCH", f"{V1}/six?fieldManager=app&force=true", lamp("v1", "six", watt=4), APPLY)
    found = server.ask("GET", f"{V2}/seven").json
    yield "status", *ask("PUT", f"{V2}/seven/status", found | {"status": {"n": 3}})
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    yield "finalizer", *ask("PATCH", f"{V1}/eight?fieldManager=m", held, MERGE)
    yield "marked", *ask("DELETE", f"{V2}/eight")
    yield "released", *ask("PATCH", f"{V2}/eight?fieldManager=m", {"metadata": {"finalizers": None}}, MERGE)
    yield "collection", *ask("DELETE", f"{V2}?fieldSelector=metadata.name%3Dnine")
    for path in (V1, V2):
        yield "list", *ask("GET", path)
    store("v2", only=True)
    # `three` is still stored in v1.
    yield "get", *ask("GET", f"{V2}/one")
    for method, body, headers in (
        ("GET", None, {}),
        ("PUT", lamp("v2", "three", lumen=3) | {"metadata": {"name": "three", "resourceVersion": "1"}}, {}),
        ("PATCH", {"spec": {"mode": "dim"}}, MERGE),
        ("PATCH", lamp("v2", "three", lumen=3), APPLY),
        ("DELETE", None, {}),
    ):
        yield method, *ask(method, f"{V2}/three?fieldManager=m" if method == "PATCH" else f"{V2}/three", body, headers)
    yield "create", *ask("POST", V2, lamp("v2", "three"))
    yield "collection", *ask("DELETE", V2)
    store("v1")
    yield "served again", *ask("GET", f"{V1}/three")
    for name in ("two", "three"):
        yield "stored in either", *ask("GET", f"{V2}/{name}")
    store("v2", only=True)
    yield "delete what can be read", *ask("DELETE", f"{V2}/two", UNSAFE)
    yield "delete what cannot be read", *ask("DELETE", f"{V2}/three", UNSAFE)
    yield "it is deleted", *ask("GET", f"{V2}/three")


def initial(server: Server, path: str) -> list[tuple[str, Any]]:
    """The objects with which a watch begins, by name and spec."""
    events = map(json.loads, server.ask("GET", f"{path}?{INITIAL}").text.splitlines())
    return sorted(
        (event["object"]["metadata"].get("name", ""), event["object"].get("spec"))
        for event in events
        if event["type"] == "ADDED"
    )


def moved(server: Server, before: Object, path: str) -> int:
    """1 if the object was written since."""
    return int(server.ask("GET", path).json["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"])


def test_stored_version_changes_across_a_restart(tmp_path: pathlib.Path) -> None:
    with Hook(tmp_path, convert) as hook, here(tmp_path / "dev", hook) as (server, dev):
        server.ask("POST", V1, lamp("v1", watt=7))
        assert dev.stop() == 0
        write(tmp_path / "dev" / "lamps.yaml", made(hook, "v2"))
        dev.start()
        server.user.close()
        hook.seen.clear()
        assert server.ask("GET", f"{V2}/one").json["spec"] == {"lumen": 70}
        assert [review["request"]["objects"][0]["apiVersion"] for review in hook.seen] == [f"{GROUP}/v1"]
        assert server.ask("GET", f"{V1}/one").json["spec"] == {"watt": 7}


def test_page_says_how_to_change_the_stored_version(tmp_path: pathlib.Path, kubectl_binary: pathlib.Path) -> None:
    page = (PROJECT / "docs" / "crds.md").read_text().partition("### Change the stored version")[2]
    [command] = re.findall(r"^ *\$ (kubectl get .*)$", page, re.MULTILINE)
    with Hook(tmp_path, convert) as hook, here(tmp_path / "dev", hook) as (server, _):
        store = following(server, tmp_path / "dev" / "lamps.yaml")
        for number in range(70):
            server.ask("POST", V1, lamp("v1", f"lamp-{number}", watt=number))
        store("v2")
        environ = {"PATH": f"{kubectl_binary.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
        words = command.replace("lamps.example.com", f"lamps.{GROUP}")
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", words],
            env={**environ, "KUBECONFIG": str(server.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        store("v2", only=True)
        lumens = {item["spec"]["lumen"] for item in server.ask("GET", V2).json["items"]}
        assert lumens == {10 * number for number in range(70)}


def test_watch_goes_on_in_the_new_stored_version(tmp_path: pathlib.Path) -> None:
    with Hook(tmp_path, convert) as hook, here(tmp_path / "dev", hook) as (server, _):
        created = server.ask("POST", V1, lamp("v1", watt=7)).json
        since = created["metadata"]["resourceVersion"]
        with Stream(server.user, f"{V2}?watch=1&resourceVersion={since}") as stream:
            following(server, tmp_path / "dev" / "lamps.yaml")("v2")
            assert stream.rest() == []
        with Stream(server.user, f"{V2}?watch=1&resourceVersion={since}") as stream:
            server.ask("PATCH", f"{V1}/one", {"spec": {"watt": 8}}, **MERGE)
            assert stream.next()["object"]["spec"] == {"lumen": 80}


def test_kube_apiserver_answers_the_same(tmp_path: pathlib.Path, our_own: None) -> None:
    with plane.ControlPlane(tmp_path / "plane") as cluster, Hook(tmp_path, convert) as hook, cluster.connect() as admin:
        there = Server(cluster.admin, admin, hook)
        assert admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == 201
        assert admin.ask("POST", DEFINITIONS, made(hook, "v1")).status == 201
        until(lambda: admin.ask("GET", V2).status == 200, "the definition is served")
        release = admin.ask("GET", "/version").json
        expected = list(played(there, upstream(there)))
        version = f"--emulated-version={release['major']}.{release['minor']}"
        with here(tmp_path / "dev", hook, version) as (server, _):
            steps = zip(expected, played(server, following(server, tmp_path / "dev" / "lamps.yaml")), strict=True)
            differing = [(here, there) for there, here in steps if here != there]
            assert differing == [], differing
