"""/debug/pprof: the CPU profile of this process, for users whom the authorizer allows.

Upstream: kubernetes/apiserver `pkg/server/routes/profiling.go`, golang/go `src/net/http/pprof/pprof.go`.
"""

from __future__ import annotations

import threading

from apiserver.apimachinery.errors import TextError
from apiserver.filters.state import Request
from apiserver.runtime.workers import PROFILES, Busy
from apiserver.serving.debugging import profiler
from apiserver.serving.health import Document, Response
from kubetext import strconv

INDEX, PROFILE = "/debug/pprof/", "/debug/pprof/profile"
SECONDS = 30
MARK = {"X-Go-Pprof": "1"}
"""Tells `go tool pprof` that an error's text is meant for its user."""
TEXT = b"""<html>
<head>
<title>/debug/pprof/</title>
</head>
<body>
/debug/pprof/<br>
<a href='profile'>profile</a>: CPU time by function. You can specify the duration in the seconds GET parameter.
</body>
</html>
"""


def documents(*, longest: float) -> dict[str, Document]:
    """Return the index and the profile by path. A request has `longest` seconds."""

    async def index(request: Request) -> Response:
        headers = {"X-Content-Type-Options": "nosniff"}
        return await request.exchange.respond(200, "text/html; charset=utf-8", TEXT, headers=headers)

    async def redirect(request: Request) -> Response:
        return await request.exchange.respond(302, "text/plain", b"", headers={"Location": INDEX})

    async def profile(request: Request) -> Response:
        seconds = _seconds(request.exchange.query.first("seconds") or "")
        if seconds >= longest:
            raise TextError(400, "profile duration exceeds server's WriteTimeout\n", headers=MARK)
        stop = threading.Event()
        try:
            found = await PROFILES.run(profiler.cpu_profile, seconds, stop)
        except Busy:
            raise TextError(
                500, "Could not enable CPU profiling: cpu profiling already in use\n", headers=MARK
            ) from None
        finally:
            stop.set()
        headers = {"X-Content-Type-Options": "nosniff", "Content-Disposition": 'attachment; filename="profile"'}
        return await request.exchange.respond(200, "application/octet-stream", found, headers=headers)

    return {INDEX: index, INDEX.rstrip("/"): redirect, PROFILE: profile}


def _seconds(text: str) -> int:
    """Return the duration that a client asks for; the default for text that is no positive number."""
    try:
        found = strconv.parse_int(text)
    except ValueError:
        return SECONDS
    return found if found > 0 else SECONDS
