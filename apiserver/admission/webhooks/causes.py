"""Why a call failed, in the words of Go's libraries and of client-go, which reach whoever made the request.

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

from apiserver.runtime.tls_records import Refused, Renegotiation
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
_ALERTS = {
    "UNEXPECTED_MESSAGE": "unexpected message",
    "BAD_RECORD_MAC": "bad record MAC",
    "RECORD_OVERFLOW": "record overflow",
    "HANDSHAKE_FAILURE": "handshake failure",
    "BAD_CERTIFICATE": "bad certificate",
    "UNSUPPORTED_CERTIFICATE": "unsupported certificate",
    "CERTIFICATE_REVOKED": "revoked certificate",
    "CERTIFICATE_EXPIRED": "expired certificate",
    "CERTIFICATE_UNKNOWN": "unknown certificate",
    "ILLEGAL_PARAMETER": "illegal parameter",
    "UNKNOWN_CA": "unknown certificate authority",
    "ACCESS_DENIED": "access denied",
    "DECODE_ERROR": "error decoding message",
    "DECRYPT_ERROR": "error decrypting message",
    "PROTOCOL_VERSION": "protocol version not supported",
    "INSUFFICIENT_SECURITY": "insufficient security level",
    "INTERNAL_ERROR": "internal error",
    "USER_CANCELLED": "user canceled",
    "NO_RENEGOTIATION": "no renegotiation",
    "MISSING_EXTENSION": "missing extension",
    "UNRECOGNIZED_NAME": "unrecognized name",
    "CERTIFICATE_REQUIRED": "certificate required",
    "NO_APPLICATION_PROTOCOL": "no application protocol",
}
_ALERT = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_(?:ALERT_)?(\w+)")


class Broken(Exception):
    """A connection failed before there was an answer; the text is Go's. `unsent`: nothing of the request had left."""

    def __init__(self, text: str, *, unsent: bool = False) -> None:
        super().__init__(text)
        self.unsent = unsent


# ------------------------------------------------------------------------------------------------------------------ connections


def of_dial(error: OSError, host: str, port: int) -> str:
    return f"dial tcp {_address(host, port)}: connect: {_system(error)}"


def of_socket(lost: Exception | None, local: Any, peer: Any, *, cut: bool = False) -> Broken:
    """A connection that ended too early; `cut`: in the middle of a TLS record."""
    if not isinstance(lost, OSError):
        return Broken("unexpected EOF" if cut else "EOF")
    return Broken(f"read tcp {_address(*local[:2])}->{_address(*peer[:2])}: read: {_system(lost)}")


def of_tls(error: ssl.SSLError, first: bytes) -> Exception:
    """`first` are the first bytes that the peer sent. A certificate that is not believed is left to who knows the words for it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error
    if isinstance(error, Renegotiation):
        return Broken(f"local error: tls: {error}")
    if isinstance(error, Refused):
        return Broken(f"tls: {error}")
    if first and (first[0] not in range(20, 25) or first[1:2] not in (b"", b"\x03")):
        if first.startswith(b"HTTP/"):
            return Broken("http: server gave HTTP response to HTTPS client")
        return Broken("tls: first record does not look like a TLS handshake")
    reason = error.reason or ""
    alert = _ALERT.fullmatch(reason)
    if alert and alert.group(1) in _ALERTS:
        return Broken(f"remote error: tls: {_ALERTS[alert.group(1)]}")
    if "EOF" in reason:
        return Broken("EOF")
    return Broken(f"tls: {reason.lower().replace('_', ' ') or error}")


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
    """What an answer that is no 2xx means, or an empty one; None for one that can be read. Raises ValueError for a Content-Type that is
    none."""
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
    if not text:
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
