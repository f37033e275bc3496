"""Pages for people who look into a running server: /statusz, /flagz, and /debug/flags/v, which changes how much is logged.

/statusz and /flagz are text, or an object for clients whose Accept header asks for that kind.
Upstream: kubernetes/apiserver `pkg/server/{statusz,flagz}`, `pkg/server/routes/flags.go`, kubernetes/component-base `logs/logs.go`.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apiserver.filters.state import Request
from apiserver.schema.types import Struct
from apiserver.serving.health import Document, Response
from apiserver.wire import negotiation
from apiserver.wire.forms import form
from kubetext import strconv
from kubetext.quoting import go_quote

STATUSZ, FLAGZ = "/statusz", "/flagz"
COMPONENT = "apiserver"
GROUP, VERSIONS = "config.k8s.io", ("v1beta1", "v1alpha1")
DEPRECATED = VERSIONS[1]
TEXT = "text/plain; charset=utf-8"
DELIMITERS = (":", ": ", "=", " ")
"""One is drawn for each answer, so that no program begins to parse the text."""
HEADER = """
{} {}
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
"""
NOT_DEBUGGING = frozenset({"apis", "api", "openid", "openapi", ".well-known"})
"""Folders of paths that /statusz does not name."""
VERBOSITY_BYTES = 64
"""Bytes of a request body that are read as a number."""

Members = Mapping[str, Any]


def page(kind: str, *, members: Callable[[], Members], text: Callable[[], str]) -> Document:
    """Return the page of a kind. `members` are those of its object, besides kind, apiVersion and metadata. Accepts every method."""
    shape = Struct(name=kind, model=f"io.k8s.{GROUP}", doc="A page for people.", fields=())

    async def answer(request: Request) -> Response:
        exchange = request.exchange
        chosen = negotiation.for_page(
            exchange.accept, exchange.query, exchange.user_agent, kinds=(kind, GROUP, VERSIONS)
        )
        if chosen is None:
            body = HEADER.format(COMPONENT, kind.lower()) + text()
            return await exchange.respond(200, TEXT, body.encode())
        representation, version = chosen
        value = {"kind": kind, "apiVersion": f"{GROUP}/{version}", "metadata": {"name": COMPONENT}, **members()}
        headers = {}
        if version == DEPRECATED:
            said = f"This version of the {kind.lower()} endpoint is deprecated. Please use a newer version."
            headers["Warning"] = f"299 - {go_quote(said)}"
        media = f"{representation.media};g={GROUP};v={version};as={kind}"
        return await exchange.respond(200, media, form.document(representation, value, shape).run(), headers=headers)

    return answer


def statusz(
    *, started: float, now: Callable[[], float], build: Mapping[str, str], emulated: str, paths: Iterable[str]
) -> Document:
    """Return the page about the process.

    `started` and `now` are seconds since 1970, `build` is the document of /version, `paths` are all paths of the server.
    """
    python, binary = build["goVersion"], build["gitVersion"].removeprefix("v")
    folders = sorted({f"/{folder}" for path in paths if (folder := path.split("/")[1]) and folder not in NOT_DEBUGGING})
    began = dt.datetime.fromtimestamp(int(started), dt.UTC)

    def members() -> Members:
        return {
            "startTime": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "uptimeSeconds": max(0, int(now() - started)),
            "goVersion": python,
            "binaryVersion": binary,
            "emulationVersion": emulated,
            "paths": folders,
        }

    def text() -> str:
        minutes, seconds = divmod(max(0, int(now() - started)), 60)
        between = random.choice(DELIMITERS)
        lines = {
            "Started": f"{began:%a %b} {began.day:>2} {began:%H:%M:%S} UTC {began.year}",
            "Up": f"{minutes // 60} hr {minutes % 60:02} min {seconds:02} sec",
            "Go version": python,
            "Binary version": binary,
            "Emulation version": emulated,
            "Paths": " ".join(folders),
        }
        return "\n" + "".join(f"{name}{between} {value}\n" for name, value in lines.items())

    return page("Statusz", members=members, text=text)


def flagz(flags: Callable[[], Mapping[str, str]]) -> Document:
    """Return the page of all flags of this process, by name, with their present values. Secrets must be hidden already."""

    def text() -> str:
        between = random.choice(DELIMITERS)
        return "".join(f"{name}{between}{value}\n" for name, value in sorted(flags().items()))

    return page("Flagz", members=lambda: {"flags": dict(sorted(flags().items()))}, text=text)


def debug_flags(set_verbosity: Callable[[int], None]) -> dict[str, Document]:
    """Return /debug/flags and /debug/flags/v by path. A PUT of a number to the latter calls `set_verbosity`."""

    async def verbosity(request: Request) -> Response:
        if request.method != "PUT":
            return await _plain(request, 406, "unsupported http method")
        sent = await request.exchange.body()
        try:
            level = strconv.parse_uint(sent[:VERBOSITY_BYTES].decode(errors="replace"), bits=32)
        except ValueError as e:
            return await _plain(request, 400, str(e))
        set_verbosity(level)
        return await _plain(request, 200, f"successfully set klog.logging.verbosity to {level}")

    async def index(request: Request) -> Response:
        return await request.exchange.respond(200, "text/html; charset=utf-8", INDEX)

    return {"/debug/flags": index, "/debug/flags/v": verbosity}


async def _plain(request: Request, code: int, text: str) -> Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return await request.exchange.respond(code, "text/plain", text.encode(), headers=headers)


INDEX = b"""<html>
<head>
<title>/debug/flags/</title>
</head>
<body>
/debug/flags/<br>
<br>
flags:<br>
<table>
<tr>v<br>
</table>
<br>
full flags configurable<br>
</body>
</html>
"""
