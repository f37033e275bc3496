"""Scenarios over custom resources: tables of requests with the exact answers of a kube-apiserver. Knows no server.

A file of `topics/` holds scenarios, each of them a promise with its steps. A step is a request and the expected answer:

* `do` is the method and the path: `POST widgets`, `GET v2:widgets/a/status?x=1`, or an absolute path. `NS` stands for the namespace.
* The body is one of `send` (gets apiVersion and kind where they are missing), `body` (JSON as it is) and `text`.
* `type`, `accept` and `agent` are the headers Content-Type, Accept and User-Agent.
* `open` names a watch that the step opens; `read` names an open watch, of which the step reads `count` events.
* `pick` is a JSON pointer: only this part of the answer is compared. `unordered` compares lists and joined errors without their order.
* `code`, `content` (Content-Type, if it is not JSON), `warnings` and `answer` are the expected answer. Members under `1.36` replace them
  for that release.

Uids, times and versions of objects are compared by when they appear: `<uid-1>` is the first uid of the scenario, also in requests.
`LONG` stands for a text of 500 characters.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

HERE = pathlib.Path(__file__).resolve().parent
CRDS, TOPICS = HERE / "crds", HERE / "topics"
GROUP = "promises.sluice.dev"
VERSIONS = ("v1", "v2", "v1beta1")
"""All versions of the definitions, the preferred one first. Kubernetes prefers the greatest of the stable ones: v2."""
JSON = "application/json"
ANSWER = ("code", "content", "warnings", "answer")

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_AGE = re.compile(r"(?:\d+[smhdy])+")
_WARNING = re.compile(r'299 - "(.*)"', re.DOTALL)
_TOKEN = re.compile(r"<(?:uid|version|name|continue)-\d+>")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_VERSION = re.compile(r"""(resourceVersion\\*"?: ?\\*")(\d+)""")
OWN_NAMES = (
    ("#/definitions/dev.sluice.apimachinery.", "#/definitions/io.k8s.apimachinery."),
    ('in scheme "apiserver"', 'in scheme "pkg/runtime/scheme.go:111"'),
)
"""Names that Sluice has in place of upstream's: docs/differences.md says why."""
LONG = "x" * 500
TIMES = {"creationTimestamp", "deletionTimestamp", "time"}


class Loader(yaml.CSafeLoader):
    """YAML in which times are texts."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class Scenario:
    topic: str
    promise: str
    steps: list[dict[str, Any]]
    only: tuple[str, ...] = ()
    """Targets that can be asked; empty for all."""


def load(file: pathlib.Path) -> list[Scenario]:
    document = yaml.load(file.read_text(), Loader)
    return [
        Scenario(file.stem, item["promise"], item["steps"], tuple(item.get("only", ())))
        for item in document["scenarios"]
    ]


def all_scenarios() -> Iterator[Scenario]:
    for file in sorted(TOPICS.glob("*.yaml")):
        yield from load(file)


def definitions() -> list[dict[str, Any]]:
    return [document for file in sorted(CRDS.glob("*.yaml")) for document in yaml.load_all(file.read_text(), Loader)]


class Kinds:
    """Kind and scope by plural, from the definitions."""

    def __init__(self) -> None:
        specs = [document["spec"] for document in definitions()]
        self.kinds = {spec["names"]["plural"]: spec["names"]["kind"] for spec in specs}
        self.namespaced = {spec["names"]["plural"]: spec["scope"] == "Namespaced" for spec in specs}


def expected(step: Mapping[str, Any], release: str) -> dict[str, Any]:
    """The answer that a release gives, as in `1.36`."""
    of_release: Mapping[str, Any] = step.get(release, {})
    return {name: step[name] for name in ANSWER if name in step} | dict(of_release)


class Play:
    """One run of a scenario: the names given to uids and versions so far."""

    def __init__(self, namespace: str, kinds: Kinds) -> None:
        self.namespace = namespace
        self.kinds = kinds
        self._tokens: dict[str, str] = {}
        self._values: dict[str, str] = {}

    # Requests

    def path(self, where: str) -> str:
        if where.startswith("/"):
            return self._real(where)
        version, colon, rest = where.partition(":")
        if not (colon and re.fullmatch(r"v\d\w*", version)):
            version, rest = "v1", where
        scope = f"namespaces/{self.namespace}/" if self.kinds.namespaced.get(re.split(r"[/?]", rest)[0], True) else ""
        return self._real(f"/apis/{GROUP}/{version}/{scope}{rest}")

    def body(self, step: Mapping[str, Any], path: str) -> str | None:
        if "text" in step:
            return self._real(step["text"])
        if "body" in step:
            return self._real(json.dumps(step["body"]))
        if "send" not in step:
            return None
        parts = path.split("?", maxsplit=1)[0].split("/")
        plural = next((part for part in reversed(parts) if part in self.kinds.kinds), "")
        typed = {"apiVersion": "/".join(parts[2:4]), "kind": self.kinds.kinds.get(plural, "")}
        return self._real(json.dumps(typed | step["send"]))

    def headers(self, step: Mapping[str, Any]) -> dict[str, str]:
        named = {
            "Content-Type": step.get("type"),
            "Accept": step.get("accept"),
            "User-Agent": step.get("agent", "promise/1"),
        }
        if not step.get("type") and {"text", "body", "send"} & step.keys():
            named["Content-Type"] = JSON
        return {name: value for name, value in named.items() if value}

    def _real(self, text: str) -> str:
        text = text.replace("NS", self.namespace).replace("LONG", LONG)
        return _TOKEN.sub(lambda found: self._values[found[0]], text)

    # Answers

    def answer(self, code: int, headers: Any, body: bytes, step: Mapping[str, Any]) -> dict[str, Any]:
        """The parts of an answer that are compared."""
        seen: dict[str, Any] = {"code": code}
        content = headers.get("Content-Type", "")
        if content != JSON:
            seen["content"] = content
        if warnings := headers.get_all("Warning"):
            seen["warnings"] = [self._plain(_unquoted(text)) for text in warnings]
        if content.startswith(JSON) and body:
            seen["answer"] = self.value(json.loads(body), step)
        elif body:
            try:
                text = body.decode()
                for what, value in re.findall(r'^ *(uid|resourceVersion): "?([0-9a-f-]+)', text, re.MULTILINE):
                    self._name("uid" if what == "uid" else "version", value)
                seen["answer"] = self._plain(text)
            except UnicodeDecodeError:
                seen["answer"] = base64.b64encode(body).decode()
        return seen

    def value(self, value: Any, step: Mapping[str, Any]) -> Any:
        for name in step.get("pick", "").split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            value = value[int(name)] if isinstance(value, list) else value.get(name)
        self._note(value, listed=True)
        if (
            isinstance(value, dict)
            and ("items" in value or "rows" in value)
            and "resourceVersion" in value.get("metadata", ())
        ):
            # Upstream counts versions for all resources together, so that of a list says nothing.
            value["metadata"]["resourceVersion"] = "<version>"
        value = self._normal(value)
        return _unordered(value) if step.get("unordered") else value

    def _note(self, value: Any, *, listed: bool = False) -> None:
        """Name what differs from run to run."""
        if isinstance(value, dict):
            for name, member in value.items():
                if name == "uid" and isinstance(member, str) and _UUID.fullmatch(member):
                    self._name("uid", member)
                if name == "metadata" and isinstance(member, dict):
                    if not (listed and ("items" in value or "rows" in value)):
                        self._name("version", member.get("resourceVersion"))
                    if member.get("generateName"):
                        self._name("name", member.get("name"))
                    self._name("continue", member.get("continue"))
                self._note(member)
        elif isinstance(value, list):
            for member in value:
                self._note(member, listed=False)

    def _name(self, what: str, value: str | None) -> None:
        if value and value not in self._tokens:
            number = 1 + sum(token.startswith(f"<{what}-") for token in self._tokens.values())
            self._tokens[value] = f"<{what}-{number}>"
            self._values[f"<{what}-{number}>"] = value

    def _normal(self, value: Any) -> Any:
        if isinstance(value, dict):
            made = {name: self._member(name, member, value) for name, member in value.items()}
            return {self._plain(name): member for name, member in made.items()}
        if isinstance(value, list):
            return [self._normal(member) for member in value]
        return self._plain(value) if isinstance(value, str) else value

    def _member(self, name: str, value: Any, parent: Mapping[str, Any]) -> Any:
        if name in TIMES and isinstance(value, str):
            return "<time>"
        if name == "resourceVersion" and isinstance(value, str):
            return self._tokens.get(value, value)
        if name == "cells":
            return ["<age>" if isinstance(cell, str) and _AGE.fullmatch(cell) else self._normal(cell) for cell in value]
        if name == "managedFields" and isinstance(value, list):
            # Entries of an operation are sorted by time first, and a second may end between two steps.
            return sorted((self._entry(entry) for entry in value), key=lambda text: (" Apply " not in text, text))
        if name == "continue":
            return self._tokens.get(value, value)
        return self._normal(value)

    def _entry(self, entry: Mapping[str, Any]) -> str:
        """One entry of managedFields on one line, which says all that is in it."""
        words = [entry.get("manager", "-"), entry.get("operation", "-"), entry.get("apiVersion", "-")]
        words += [f"/{entry['subresource']}"] if "subresource" in entry else []
        words += [] if "time" in entry else ["without time"]
        words += [] if entry.get("fieldsType") == "FieldsV1" else ["without type"]
        return self._plain(" ".join([*words, json.dumps(entry.get("fieldsV1"), separators=(",", ":"))]))

    def _plain(self, text: str) -> str:
        text = text.replace(self.namespace, "NS").replace(LONG, "LONG")
        for own, upstreams in OWN_NAMES:
            text = text.replace(own, upstreams)
        text = _TIME.sub(lambda found: "<time>" if _is_now(found[0]) else found[0], text)
        text = _VERSION.sub(lambda found: found[1] + self._tokens.get(found[2], "<version>"), text)
        for value, token in self._tokens.items():
            if not value.isdigit():
                text = text.replace(value, token)
        return text


def _is_now(text: str) -> bool:
    written = dt.datetime.fromisoformat(text)
    return abs(dt.datetime.now(dt.UTC) - written) < dt.timedelta(days=1)


def _unquoted(header: str) -> str:
    match = _WARNING.fullmatch(header)
    return re.sub(r"\\(.)", r"\1", match[1]) if match else header


def _unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unordered(member) for name, member in value.items()}
    if isinstance(value, list):
        return sorted((_unordered(member) for member in value), key=json.dumps)
    if isinstance(value, str) and (match := re.fullmatch(r"(.*?: )\[(.*)\]", value, re.DOTALL)):
        return f"{match[1]}[{', '.join(sorted(match[2].split(', ')))}]"
    return value
