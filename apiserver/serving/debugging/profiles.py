"""/debug/pprof: profiles of CPU time and of memory of this process, for users whom the authorizer allows.

Upstream: kubernetes/apiserver `pkg/server/routes/profiling.go`, golang/go `src/net/http/pprof/pprof.go`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from apiserver.apimachinery.errors import TextError
from apiserver.filters.state import Request
from apiserver.runtime.workers import PROFILES, Busy
from apiserver.serving.debugging import heap, profiler
from apiserver.serving.health import Document, Response
from kubetext import strconv

INDEX, PROFILE, HEAP = "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/heap"
SECONDS, HEAP_SECONDS = 30, 10
BUSY = {
    "profile": "Could not enable CPU profiling: cpu profiling already in use\n",
    "heap": "Could not enable heap profiling: another profile is being made\n",
}
Make = Callable[[float, threading.Event], bytes]
"""Makes a profile for some seconds, or until the event."""
MARK = {"X-Go-Pprof": "1"}
"""Tells `go tool pprof` that an error's text is meant for its user."""
TEXT = b"""<html>
<head>
<title>/debug/pprof/</title>
</head>
<body>
/debug/pprof/<br>
<a href='profile'>profile</a>: CPU time by function. You can specify the duration in the seconds GET parameter.<br>
<a href='heap'>heap</a>: Memory that is allocated meanwhile and stays in use, by function.
</body>
</html>
"""


def documents(*, longest: float) -> dict[str, Document]:
    """Return the index and the profiles by path. A request has `longest` seconds."""

    async def index(request: Request) -> Response:
        headers = {"X-Content-Type-Options": "nosniff"}
        return await request.exchange.respond(200, "text/html; charset=utf-8", TEXT, headers=headers)

    async def redirect(request: Request) -> Response:
        return await request.exchange.respond(302, "text/plain", b"", headers={"Location": INDEX})

    async def profile(request: Request) -> Response:
        return await _made(request, "profile", profiler.cpu_profile, otherwise=SECONDS)

    async def heap_profile(request: Request) -> Response:
        return await _made(request, "heap", heap.heap_profile, otherwise=HEAP_SECONDS)

    async def _made(request: Request, name: str, make: Make, *, otherwise: int) -> Response:
        seconds = _seconds(request.exchange.query.first("seconds") or "", otherwise=otherwise)
        if seconds >= longest:
            raise TextError(400, "profile duration exceeds server's WriteTimeout\n", headers=MARK)
        stop = threading.Event()
        try:
            found = await PROFILES.run(make, seconds, stop)
        except Busy:
            raise TextError(500, BUSY[name], headers=MARK) from None
        finally:
            stop.set()
        headers = {"X-Content-Type-Options": "nosniff", "Content-Disposition": f'attachment; filename="{name}"'}
        return await request.exchange.respond(200, "application/octet-stream", found, headers=headers)

    return {INDEX: index, INDEX.rstrip("/"): redirect, PROFILE: profile, HEAP: heap_profile}


def _seconds(text: str, *, otherwise: int) -> int:
    """Return the duration that a client asks for, or `otherwise` for text that is no positive number."""
    try:
        found = strconv.parse_int(text)
    except ValueError:
        return otherwise
    return found if found > 0 else otherwise
