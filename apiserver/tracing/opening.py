"""Build the tracer of a configuration. The tracing library is imported only here, and only if `--tracing-config-file` is given."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import importlib
import importlib.util
import socket
import struct
import threading
from collections.abc import Iterator

from apiserver.config.config import ConfigError
from apiserver.runtime.spans import Tracer
from apiserver.tracing import configuration
from apiserver.tracing.configuration import InvalidConfiguration

LIBRARIES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc")
SERVER = b"sluice"
"""kube-apiserver on the same host has another id."""
MISSING = "tracing needs the OpenTelemetry SDK: pip install 'sluice-apiserver[tracing]'"


def open_tracer(path: str) -> Tracer | None:
    """Build the tracer of a file; None without a file. Takes half a second: call it in a thread. Raises ConfigError."""
    if not path:
        return None
    if told := list(errors(path)):
        raise ConfigError(told)
    found = configuration.load(path)
    provider = importlib.import_module("apiserver.tracing.provider")
    made: Tracer = provider.Provider(endpoint=found.endpoint, per_million=found.per_million, instance=instance())
    return made


async def close_tracer(tracer: Tracer) -> None:
    """Export what is left. The caller limits the time: the end of the process does not wait for a collector that does not answer."""
    loop, closed = asyncio.get_running_loop(), asyncio.Event()

    def close() -> None:
        tracer.close()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=close, name="tracing", daemon=True).start()
    await closed.wait()


def errors(path: str) -> Iterator[str]:
    """Yield the errors in the file, and the lack of the library."""
    if not path:
        return
    try:
        configuration.load(path)
    except InvalidConfiguration as error:
        yield f"--tracing-config-file: {error}"
    if not all(map(_is_installed, LIBRARIES)):
        yield f"--tracing-config-file: {MISSING}"


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # a package around it is missing
        return False


def instance() -> str:
    """Return the id of the server on this host, made as upstream makes it (kubernetes/apiserver `pkg/server/config.go` NewConfig)."""
    parts = (socket.gethostname().encode(), SERVER)
    digest = hashlib.sha256(b"".join(struct.pack(">H", len(part)) + part for part in parts)).digest()
    return f"apiserver-{base64.b32encode(digest[:16]).decode().rstrip('=').lower()}"
