"""A webhook server as a process of its own: `python -m tests.promises.admission.server CERT KEY CLIENT_CA`.

It records every request as it came, and answers by the program that a test has put under the request's path. Programs are lists of answers:
the first call gets the first, and the last one is given for ever after. It prints the two ports that it listens on, for webhooks (TLS) and
for tests (plain HTTP, on loopback).

An answer is a JSON object; each member is optional:

`review`   a merge patch of the AdmissionReview that allows everything
`patch`    a JSON patch, put into the response as webhooks do it
`status`, `headers`, `body`    of the HTTP answer; `body` is sent in place of the review, `filler` as many further bytes
`delay`    seconds before the answer
`hold`     the answer waits until a test lets go (`/release`)
`close`    the connection is closed in place of an answer; `raw` is a text that is written to it before
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from aiohttp import web

Answer = Mapping[str, Any]
SECONDS = 100.0
"""How long a question of a test waits at most."""


def merged(value: Any, patch: Any) -> Any:
    """A merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, wanted in patch.items():
        if wanted is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), wanted)
    return result


class Server:
    """The state of all paths."""

    def __init__(self) -> None:
        self.programs: dict[str, list[Answer]] = {}
        self.calls: list[dict[str, Any]] = []
        self.given: dict[str, int] = defaultdict(int)
        self.changed = asyncio.Condition()
        self.released: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    # For webhooks

    async def review(self, request: web.Request) -> web.StreamResponse:
        program = self.programs.get(request.path)
        body = await request.read()
        answer: Answer = self._next(request.path, program) if program else {"status": 404}
        call: dict[str, Any] = {"answered": False, **_recorded(request, body)}
        self.calls.append(call)
        async with self.changed:
            self.changed.notify_all()
        await asyncio.sleep(answer.get("delay", 0))
        if answer.get("hold"):
            await self.released[request.path].wait()
        call["answered"] = True
        if answer.get("close") or "raw" in answer:
            transport = request.transport
            assert transport is not None
            transport.write(answer.get("raw", "").encode())
            transport.close()
        return self._answer(answer, body)

    def _next(self, path: str, program: list[Answer]) -> Answer:
        self.given[path] += 1
        return program[min(self.given[path], len(program)) - 1]

    def _answer(self, answer: Answer, body: bytes) -> web.Response:
        text: str = answer["body"] if "body" in answer else json.dumps(_review(answer, body))
        headers = {"Content-Type": "application/json", **answer.get("headers", {})}
        return web.Response(
            status=answer.get("status", 200), body=text.encode() + b" " * answer.get("filler", 0), headers=headers
        )

    # For tests

    async def program(self, request: web.Request) -> web.Response:
        self.programs[request.query["path"]] = await request.json()
        self.given[request.query["path"]] = 0
        return web.Response()

    async def recorded(self, request: web.Request) -> web.Response:
        """The calls of a path and of those below it; waits until there are as many as `count` says."""
        path, count = request.query["path"], int(request.query.get("count", "0"))

        def found() -> list[dict[str, Any]]:
            return [call for call in self.calls if f"{call['path']}/".startswith(f"{path}/")]

        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait_for(lambda: len(found()) >= count), SECONDS)
            except TimeoutError:
                return web.json_response(found(), status=504)
        return web.json_response(found())

    async def release(self, request: web.Request) -> web.Response:
        self.released[request.query["path"]].set()
        return web.Response()

    async def forget(self, request: web.Request) -> web.Response:
        """Forget the state that a test has left."""
        path = f"{request.query['path']}/"
        for held, event in self.released.items():
            if f"{held}/".startswith(path):
                event.set()
        self.programs = {name: held for name, held in self.programs.items() if not f"{name}/".startswith(path)}
        self.calls = [call for call in self.calls if not f"{call['path']}/".startswith(path)]
        return web.Response()


def _recorded(request: web.Request, body: bytes) -> dict[str, Any]:
    transport = request.transport
    assert transport is not None
    connection = transport.get_extra_info("ssl_object")
    certificate = transport.get_extra_info("peercert") or {}
    subject = {name: value for ((name, value),) in certificate.get("subject", ())}
    return {
        "at": time.monotonic(),
        "method": request.method,
        "path": request.path,
        "query": request.query_string,
        "headers": [[name, value] for name, value in request.headers.items()],
        "http": f"{request.version.major}.{request.version.minor}",
        "connection": transport.get_extra_info("peername")[1],
        "sni": getattr(connection, "asked_for", None),
        "certificate": subject.get("commonName", ""),
        "body": base64.b64encode(body).decode(),
    }


def _review(answer: Answer, body: bytes) -> Any:
    try:
        asked = json.loads(body)
        version, uid = asked["apiVersion"], asked["request"]["uid"]
    except (ValueError, KeyError):
        version, uid = "admission.k8s.io/v1", ""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if "patch" in answer:
        response["patch"] = base64.b64encode(json.dumps(answer["patch"]).encode()).decode()
        response["patchType"] = "JSONPatch"
    review = {"apiVersion": version, "kind": "AdmissionReview", "response": response}
    return merged(review, answer.get("review", {}))


async def _listen(application: web.Application, context: ssl.SSLContext | None = None) -> tuple[web.AppRunner, int]:
    # Nobody is waited for: a test that ends has let go of its own.
    runner = web.AppRunner(application, shutdown_timeout=0, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    return runner, runner.addresses[0][1]


def _context(cert: str, key: str, client_ca: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(client_ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.sni_callback = lambda connection, name, _: setattr(connection, "asked_for", name)
    return context


async def main(cert: str, key: str, client_ca: str) -> None:
    server = Server()
    hooks, control = web.Application(client_max_size=1 << 26), web.Application(client_max_size=1 << 26)
    hooks.router.add_route("*", "/{path:.*}", server.review)
    control.add_routes(
        [
            web.put("/program", server.program),
            web.get("/calls", server.recorded),
            web.post("/release", server.release),
            web.post("/forget", server.forget),
        ]
    )
    _, port = await _listen(hooks, _context(cert, key, client_ca))
    _, control_port = await _listen(control)
    print(f"serving {port} {control_port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
