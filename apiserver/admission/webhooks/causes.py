"""Word why a call failed, as Go's libraries and client-go do. Clients see these texts.

Upstream: kubernetes/client-go `rest/request.go`, kubernetes/apimachinery `pkg/api/errors/errors.go` (NewGenericServerResponse), golang/go
`src/net/net.go`, `src/crypto/tls/{alert,conn}.go`, `src/mime/mediatype.go`.
"""

from __future__ import annotations

import errno
import os
import re
import ssl
from typing import Any

import orjson

from apiserver.runtime.tls_records import CutOff, NoTLS, Refused, Renegotiation
from kubetext.quoting import go_quote

MOST_TEXT = 2048
"""Bytes of a refusal that are repeated."""
MOST_STATUS = 64 << 10
"""Bytes of a refusal in which a Status is looked for."""

_REFUSALS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_ALERT = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_(?:ALERT_)?([A-Z_]+)")
_ALERTS = {"UNKNOWN_CA": "unknown certificate authority", "CERTIFICATE_EXPIRED": "expired certificate"}
"""Alerts that Go has other words for than OpenSSL."""
_STATUS_LINE = re.compile(rb"HTTP/[0-9]\.[0-9] +[0-9]{3}(?: |$)")
CLOSED = "use of closed network connection"


class Broken(Exception):
    """There is no answer, or no head of one. The text is Go's."""


class BodyBroken(Exception):
    """The head of an answer came, and not all of its body. The text is Go's."""


# ------------------------------------------------------------------------------------------------------------------ connections


def of_dial(error: OSError, host: str, port: int) -> Broken:
    """No connection to this address, or one that ended before the handshake was over."""
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return Broken(f"read tcp {_address(host, port)}: read: {_system(error)}")
    return Broken(f"dial tcp {_address(host, port)}: connect: {_system(error)}")


def of_socket(lost: Exception | None, local: Any, peer: Any) -> Broken:
    """A connection that ended before there was an answer. `lost` is what broke it, None if the peer closed it."""
    if isinstance(lost, ssl.SSLError):
        return of_tls(lost)
    if not isinstance(lost, OSError):
        return Broken("EOF")
    if isinstance(lost, CutOff):
        return Broken("unexpected EOF")
    what = "write" if lost.errno == errno.EPIPE else "read"
    return Broken(f"{what} tcp {_address(*local[:2])}->{_address(*peer[:2])}: {what}: {_system(lost)}")


def of_tls(error: ssl.SSLError) -> Broken:
    if isinstance(error, NoTLS):
        return Broken(str(error) if error.http else f"tls: {error}")
    if isinstance(error, Renegotiation):
        return Broken(f"local error: tls: {error}")
    if isinstance(error, Refused):
        return Broken(f"tls: {error}")
    if isinstance(error, ssl.SSLEOFError):
        return Broken("EOF")
    reason = error.reason or ""
    alert = _ALERT.fullmatch(reason)
    words = (alert.group(1) if alert else reason).lower().replace("_", " ")
    if alert:
        return Broken(f"remote error: tls: {_ALERTS.get(alert.group(1), words)}")
    return Broken(f"tls: {words or error}")


def of_head(why: str, first: bytes = b"") -> Broken:
    """aiohttp's parser stopped: `why` is what it says. `first` is what the peer's answer begins with."""
    reason = why.partition("\n")[0].rstrip(":")
    line = first.partition(b"\n")[0].removesuffix(b"\r")
    if reason == "Bad status line" and not _STATUS_LINE.match(line):
        reason = f"malformed HTTP response {go_quote(line.decode('utf-8', 'surrogateescape'))}"
    reason = reason.partition(" when reading")[0]  # bytes of a long line follow
    return Broken(f"net/http: HTTP/1.x transport connection broken: {reason}")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _system(error: OSError) -> str:
    known = error.errno is not None and error.errno in errno.errorcode
    return os.strerror(error.errno).lower() if known and error.errno else str(error)


# ---------------------------------------------------------------------------------------------------------------------- answers


def pause(status: int, retry_after: str) -> float | None:
    """Seconds after which to ask again; None when the answer is final."""
    if (status != 429 and status < 500) or not re.fullmatch(r"[+-]?[0-9]{1,18}", retry_after):
        return None
    return max(float(retry_after), 0.0)


def refusal(status: int, content_type: str, body: bytes) -> str | None:
    """Return the error of an answer without 2xx, or of an empty one; None for a readable answer.

    Raises ValueError for an invalid Content-Type.
    """
    _check_media_type(content_type)
    if 200 <= status <= 206 or status == 101:
        if body:
            return None
        return f"0-length response with status code: {status} and content type: {content_type or 'application/json'}"
    message = "unknown"
    if not content_type or content_type.strip().lower().startswith("text/"):
        message = body[:MOST_TEXT].decode("utf-8", "surrogateescape").strip()
    stated = _failure(body)
    return _generic(status, message) if stated is None else stated


def _generic(status: int, message: str) -> str:
    if status in (403, 415):
        return message
    if status == 406:
        absent = "the server was unable to respond with a content type that the client supports"
        return absent if message in ("", "unknown") else message
    if status in _REFUSALS:
        return _REFUSALS[status]
    if status >= 500:
        return f"an error on the server ({go_quote(message)}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def _failure(body: bytes) -> str | None:
    """The message of a Status that says Failure, as which a webhook may refuse to answer at all."""
    if len(body) > MOST_STATUS:
        return None
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("kind") != "Status" or found.get("status") != "Failure":
        return None
    message = found.get("message") or ""
    return message if isinstance(message, str) else None


def unread(why: str) -> str:
    """An answer began, and did not come to its end."""
    return f"unexpected error when reading response body. Please retry. Original error: {why}"


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'\s*;\s*({_TOKEN})\s*=\s*(?:{_TOKEN}|"(?:[^"\\\r\n]|\\.)*")')


def _check_media_type(text: str) -> None:
    if text in ("", "application/json"):
        return
    media = text.partition(";")[0].strip()
    kind, slash, rest = media.partition("/")
    if not re.fullmatch(_TOKEN, kind):
        raise ValueError("mime: no media type")
    if slash and not rest:
        raise ValueError("mime: expected token after slash")
    if slash and not re.fullmatch(_TOKEN, rest):
        raise ValueError("mime: unexpected content after media subtype")
    at, names = len(text.partition(";")[0]), set[str]()
    while match := _PARAMETER.match(text, at):
        if match.group(1).lower() in names:
            raise ValueError("mime: duplicate parameter name")
        names.add(match.group(1).lower())
        at = match.end()
    if text[at:].strip() not in ("", ";"):
        raise ValueError("mime: invalid media parameter")
