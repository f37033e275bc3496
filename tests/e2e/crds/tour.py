"""Install the definitions of a project on both servers, ask both the same, and count the answers that differ."""

from __future__ import annotations

import collections
import contextlib
import functools
import http.client
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiserver.apiextensions import loading
from apiserver.apiextensions.documents import MOST_NODES
from apiserver.apimachinery.releases import Release
from apiserver.codecs.yaml import as_yaml
from apiserver.serving import steps as event_loop
from tests.e2e.controlplane import binaries, plane
from tests.e2e.controlplane.connection import Connection
from tests.e2e.crds import comparing
from tests.e2e.crds.play import LIVE, NAMESPACE, Play
from tests.e2e.crds.sources import File, Project
from tests.fixtures.server import Reply, dev_server

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACES = "/api/v1/namespaces"
MOST_BYTES = 3 << 20
"""Bytes of a request that kube-apiserver reads. kubectl sends a definition as JSON, which is shorter."""
PUBLISHED_SECONDS = 20.0
"""How long kube-apiserver may take to publish the documents of a group."""
_WARNING = re.compile(r'299 - "(.*)"', re.DOTALL)
_SLOW = re.compile(rf'"{event_loop.MESSAGE}" ?(.*)')
SHARED = ("io.k8s.apimachinery.", "io.k8s.api.autoscaling.")
"""Definitions that all groups share. Sluice has descriptions of its own in them."""


@dataclass
class Result:
    """The outcome of a project."""

    name: str
    definitions: int = 0
    """Definitions that kube-apiserver takes."""
    taken: int = 0
    """Those of them that Sluice takes."""
    refused: int = 0
    """Texts that both refuse."""
    steps: collections.Counter[str] = field(default_factory=collections.Counter)
    alike: collections.Counter[str] = field(default_factory=collections.Counter)
    codes: collections.Counter[str] = field(default_factory=collections.Counter)
    differences: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    """Lines of the log about steps of the event loop above the budget."""

    @property
    def accepted(self) -> int:
        """Steps that kube-apiserver answers with 2xx."""
        return sum(count for code, count in self.codes.items() if code.startswith("2"))

    def note(self, topic: str, expected: dict[str, Any], got: dict[str, Any], request: str) -> None:
        self.steps[topic] += 1
        self.codes[str(expected["code"])] += 1
        if expected == got:
            self.alike[topic] += 1
        else:
            self.differences.append(f"[{self.name}] {topic}: {request}\n{comparing.difference(expected, got)}")


class Pair:
    """kube-apiserver and Sluice, asked the same."""

    def __init__(self, admin: Connection, sluice: Connection, result: Result) -> None:
        self.sides = (admin, sluice)
        self.result = result
        self.versions: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def ask(self, topic: str, method: str, path: str, body: Any = None, *, kind: str = "", accept: str = "") -> Reply:
        headers = {"Content-Type": f"application/{kind or 'json'}"} if body is not None else {}
        headers |= {"Accept": accept} if accept else {}
        replies = [
            _asked(side, method, path, _filled(body, versions.get(_object(path), "0")), headers)
            for side, versions in zip(self.sides, self.versions, strict=True)
        ]
        expected, got = map(comparing.seen, replies)
        for reply, versions in zip(replies, self.versions, strict=True):
            _remember(reply, versions, path, method)
        said = "" if body is None else f" {json.dumps(body)}"
        self.result.note(topic, expected, got, f"{method} {path} {headers}{said}")
        return replies[0]


def _asked(side: Connection, method: str, path: str, body: Any, headers: dict[str, str]) -> Reply:
    try:
        return side.ask(method, path, None if body is None else json.dumps(body), headers=headers)
    except (OSError, http.client.HTTPException) as e:
        return Reply(0, http.client.HTTPMessage(), repr(e).encode())


def _object(path: str) -> str:
    return path.partition("?")[0].removesuffix("/status").removesuffix("/scale")


def _filled(body: Any, version: str) -> Any:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if isinstance(metadata, dict) and metadata.get("resourceVersion") == LIVE:
        return {**body, "metadata": {**metadata, "resourceVersion": version}}
    return body


def _remember(reply: Reply, versions: dict[str, str], path: str, method: str) -> None:
    if reply.status not in (200, 201) or "dryRun" in path:
        return
    answer = reply.json
    if not isinstance(answer, dict) or "items" in answer or "rows" in answer:
        return
    metadata = answer.get("metadata", {})
    if method == "POST":
        path = f"{_object(path)}/{metadata.get('name')}"
    if version := metadata.get("resourceVersion"):
        # The same object has another path in each version.
        group, _, rest = _object(path).removeprefix("/apis/").partition("/")
        plural = rest.partition("/")[2]
        for known in [known for known in versions if known.startswith(f"/apis/{group}/") and known.endswith(plural)]:
            versions[known] = version
        versions[_object(path)] = version


def run(
    project: Project,
    admin: Connection,
    folder: pathlib.Path,
    *,
    seed: str,
    objects: int,
    release: Release,
    only: str = "",
) -> Result:
    """Compare the answers about all definitions of a project."""
    result = Result(project.name)
    files = folder / "crds"
    files.mkdir(parents=True)
    installed: dict[str, Any] = {}
    try:
        for name, file in sorted(project.files.items()):
            if only in name and (definition := _judged(file, admin, folder, result, release)) is not None:
                (files / f"{name}.yaml").write_text(file.text)
                installed[name] = definition
        if installed:
            _compared(list(installed.values()), admin, folder, result, seed, objects)
    finally:
        _removed(admin, list(installed))
    return result


def _judged(file: File, admin: Connection, folder: pathlib.Path, result: Result, release: Release) -> Any:
    """Return the definition as kube-apiserver has installed it, None unless both servers take it. Notes what either says of the text."""
    body, kind = file.text.encode(), "application/yaml"
    if len(body) > MOST_BYTES:
        body, kind = json.dumps(as_yaml.read(body, most_nodes=MOST_NODES).value).encode(), "application/json"
    reply = admin.ask("POST", DEFINITIONS, body, headers={"Content-Type": kind})
    (folder / "judged").mkdir(exist_ok=True)
    copy = folder / "judged" / f"{file.name}.yaml"
    copy.write_text(file.text)
    (found,) = loading.inspect([copy], release)
    taken = reply.status == 201
    causes = [] if taken else (reply.json.get("details") or {}).get("causes") or []
    errors = sorted(f"{cause.get('field')}: {cause['message']}" for cause in causes)
    warnings = [_unquoted(text) for text in reply.headers.get_all("Warning") or []]
    # Sluice says more about conversion webhooks, and repeats no line of the file.
    ours = [text for text in found.warnings if "conversion webhook" not in text]
    expected = {"code": reply.status, "errors": errors, "warnings": sorted(warnings)}
    got = {
        "code": 201 if found.definition else reply.status if found.errors else 0,
        "errors": sorted(found.errors),
        "warnings": sorted(ours),
    }
    if not taken and not causes:
        expected["errors"] = got["errors"] = []
    result.note("definition", expected, got, f"{file.path}")
    if not taken:
        result.refused += not found.definition
        return None
    result.definitions += 1
    if found.definition is None:
        _removed(admin, [file.name])
        return None
    result.taken += 1
    return reply.json


def _unquoted(header: str) -> str:
    match = _WARNING.fullmatch(header)
    return re.sub(r"\\(.)", r"\1", match[1]) if match else header


def _compared(
    definitions: Sequence[Any], admin: Connection, folder: pathlib.Path, result: Result, seed: str, objects: int
) -> None:
    flags = ["--no-builtin-kinds", f"--crds={folder / 'crds'}", f"--emulated-version={binaries.minor()}"]
    with dev_server(folder, *flags) as server, Connection(server.kubeconfig) as sluice:
        for path in _collections(definitions):
            # The cache of a resource fills when it is asked for first. Until then it answers 429.
            plane.until(functools.partial(_answers, admin, path, 200), f"{path} is served")
        pair = Pair(admin, sluice, result)
        for definition in definitions:
            name = definition["metadata"]["name"]
            Play(pair, definition, f"{seed} {name}").run(objects)
        for path in sorted({path.rpartition("/")[0] for path in _collections(definitions)}):
            _documents(pair, path)
        log = server.log.read_text()
        result.slow = _SLOW.findall(log)
        if "Traceback" in log:
            result.differences.append(f"[{result.name}] Sluice logged\n{log[log.index('Traceback') - 300 :][:3000]}")


def _documents(pair: Pair, path: str) -> None:
    """Compare discovery and OpenAPI of a group version. kube-apiserver publishes them a little later."""
    _published(pair, "discovery", path, _resources)
    _published(pair, "OpenAPI", f"/openapi/v3{path}", _schemas)


def _published(pair: Pair, topic: str, place: str, part: Callable[[Reply], dict[str, Any]]) -> None:
    admin, sluice = pair.sides
    got = part(sluice.ask("GET", place))
    answers: list[dict[str, Any]] = []

    def same() -> bool:
        answers.append(part(admin.ask("GET", place)))
        return answers[-1] == got

    with contextlib.suppress(AssertionError):
        plane.until(same, f"{place} is published", seconds=PUBLISHED_SECONDS)
    pair.result.note(topic, answers[-1], got, f"GET {place}")


def _resources(reply: Reply) -> dict[str, Any]:
    resources = sorted(reply.json.get("resources", []), key=lambda resource: str(resource["name"]))
    return {"code": reply.status, "names": [resource["name"] for resource in resources], "resources": resources}


def _schemas(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        return {"code": reply.status, "names": []}
    found = reply.json["components"]["schemas"]
    schemas = {name: schema for name, schema in found.items() if not name.startswith(SHARED)}
    return {"code": 200, "names": sorted(schemas), "schemas": schemas}


def _collections(definitions: Sequence[Any]) -> Iterator[str]:
    for spec in (definition["spec"] for definition in definitions):
        for version in spec["versions"]:
            if version["served"]:
                yield f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"


def _answers(admin: Connection, path: str, status: int) -> bool:
    return bool(admin.ask("GET", path).status == status)


def _removed(admin: Connection, names: Sequence[str]) -> None:
    for name in names:
        admin.ask("DELETE", f"{DEFINITIONS}/{name}")
    for name in names:
        plane.until(functools.partial(_answers, admin, f"{DEFINITIONS}/{name}", 404), f"{name} is deleted")


def prepared(admin: Connection) -> None:
    """Returns when kube-apiserver has the namespace of the tour."""
    plane.until(functools.partial(_answers, admin, f"{NAMESPACES}/{NAMESPACE}", 200), f"{NAMESPACE} exists")
