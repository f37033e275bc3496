"""The webhook server as tests see it: its programmed answers, and the calls that it received."""

from __future__ import annotations

import base64
import dataclasses
import functools
import http.client
import json
import pathlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.e2e.controlplane.pki import PKI, Authority
from tests.fixtures.processes import Process

SECONDS = 120.0
NAMESPACE, SERVICE = "hooks", "recorder"
HOSTS = ("localhost", f"{SERVICE}.{NAMESPACE}.svc")

Object = dict[str, Any]


# ------------------------------------------------------------------------------------------------------------- answers


def allow(**response: Any) -> Object:
    """With further members of the response, if any."""
    return {"review": {"response": response}}


def deny(**status: Any) -> Object:
    return {"review": {"response": {"allowed": False, "status": status}}}


def patch(*operations: Object, **response: Any) -> Object:
    """A JSON patch."""
    return {"patch": list(operations), **allow(**response)}


def add(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


def warn(*warnings: str) -> Object:
    return allow(warnings=list(warnings))


# ----------------------------------------------------------------------------------------------------------- what came


@dataclass(frozen=True)
class Call:
    """One request to the server."""

    at: float
    """Seconds of the server's clock."""
    method: str
    path: str
    query: str
    headers: Sequence[Sequence[str]]
    http: str
    connection: int
    sni: str | None
    certificate: str
    """The name in the client's certificate."""
    body: str
    answered: bool

    @property
    def hook(self) -> str:
        """The last part of the path: the name that the test gave."""
        return self.path.rpartition("/")[2]

    @functools.cached_property
    def raw(self) -> bytes:
        return base64.b64decode(self.body)

    @functools.cached_property
    def review(self) -> Object:
        review: Object = json.loads(self.raw)
        return review

    @property
    def request(self) -> Object:
        request: Object = self.review["request"]
        return request

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) < 2, found
        return found[0] if found else None


class Hooks:
    """The process, with a certificate of a CA that is nobody else's. It trusts clients of the cluster's CA, and asks for no certificate."""

    def __init__(self, folder: pathlib.Path, pki: PKI) -> None:
        folder.mkdir(parents=True)
        self.authority = Authority(folder, "hooks-ca")
        pair = self.authority.serving("hooks", HOSTS)
        log = folder / "hooks.log"
        files = (pair.cert, pair.key, pki.cluster.file)
        self.process = Process([sys.executable, "-m", "tests.promises.admission.server", *map(str, files)], log=log)
        try:
            self.process.until(lambda: "serving " in log.read_text(), "it serves", seconds=SECONDS)
        except BaseException:
            self.close()
            raise
        self.port, self._control = map(int, log.read_text().partition("serving ")[2].split()[:2])

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(self.authority.pem).decode()

    def url(self, path: str, host: str = "localhost") -> str:
        return f"https://{host}:{self.port}{path}"

    def program(self, path: str, answers: Sequence[Object]) -> None:
        """Program the answers of a path. Without answers, it allows everything."""
        self._ask("PUT", "/program", list(answers) or [{}], path=path)

    def calls(self, path: str, *, count: int = 0) -> list[Call]:
        """Calls of the path and those below it, in their order; waits until there are so many."""
        names = {field.name for field in dataclasses.fields(Call)}
        found = self._ask("GET", "/calls", path=path, count=str(count))
        return [Call(**{name: value for name, value in call.items() if name in names}) for call in found]

    def release(self, path: str) -> None:
        """Those that are held there are answered, and so are all that come."""
        self._ask("POST", "/release", path=path)

    def forget(self, path: str) -> None:
        self._ask("POST", "/forget", path=path)

    def _ask(self, method: str, where: str, body: Any = None, **query: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._control, timeout=SECONDS)
        try:
            connection.request(method, f"{where}?{urlencode(query)}", None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, (answer.status, text[:2000])
            return json.loads(text) if text else None
        finally:
            connection.close()

    def close(self) -> None:
        self.process.stop()
