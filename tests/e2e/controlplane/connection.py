"""One user's connection to an API server, from a kubeconfig: what tests ask with when they do not use kubectl."""

from __future__ import annotations

import base64
import http.client
import json
import pathlib
import select
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.fixtures import kubeconfig as kubeconfig_of
from tests.fixtures.server import Reply

SECONDS = 120.0


class Connection:
    """Requests on one kept connection, opened again when the server has closed it. For one thread."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        address = urlsplit(cluster["server"])
        self.host, self.port = address.hostname or "", address.port or 443
        self.headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self.context = kubeconfig_of.context(cluster, user)
        self.authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._kept = self.connect()

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=SECONDS)

    def close(self) -> None:
        self._kept.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def token(self, namespace: str, name: str) -> str:
        """A fresh one of a service account that exists."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        reply = self.ask("POST", path, {"spec": {"expirationSeconds": 86400}})
        assert reply.status == 201, reply.text
        text: str = reply.json["status"]["token"]
        return text

    def ask(self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Reply:
        sent = {**self.headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        if self._kept.sock is not None and select.select([self._kept.sock], [], [], 0)[0]:
            self._kept.close()  # the server has: it says nothing else before a request
        try:
            self._kept.request(method, path, body=body, headers=sent)
            answer = self._kept.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        except BaseException:
            self._kept.close()
            raise


class Stream:
    """A watch, read event by event, on a connection of its own."""

    def __init__(self, user: Connection, target: str, *, seconds: float = SECONDS) -> None:
        """`seconds`: how long the server may say nothing."""
        self._connection = http.client.HTTPSConnection(user.host, user.port, context=user.context, timeout=seconds)
        self._connection.request("GET", target, headers=user.headers)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()

    def next(self) -> dict[str, Any]:
        """Waits for the next event."""
        line = self._answer.readline()
        assert line.endswith(b"\n"), f"the stream ended: {line!r}"
        event: dict[str, Any] = json.loads(line)
        return event

    def rest(self) -> list[dict[str, Any]]:
        """Everything up to the clean end of the stream; a stream that breaks off raises."""
        events = []
        while line := self._answer.readline():
            events.append(json.loads(line))
        return events
