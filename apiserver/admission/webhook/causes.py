"""Why a call failed, in the words of Go's libraries and of client-go, which reach whoever made the request.

Upstream: kubernetes/client-go `rest/request.go`, kubernetes/apimachinery `pkg/api/errors/errors.go` (NewGenericServerResponse), golang/go
`src/{net,net/http,crypto/tls,crypto/x509}`.
"""

from __future__ import annotations

import errno
import os
import ssl

import aiohttp

from apiserver.apimachinery.fieldpath import go_quote

MOST_TEXT = 2048
"""Bytes of a refusal that are repeated."""

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


def pause(status: int, retry_after: str) -> float | None:
    """Seconds after which to ask again; None when the answer is final."""
    if status != 429 and status < 500:
        return None
    sign, digits = retry_after[:1], retry_after.lstrip("+-")
    if len(retry_after) - len(digits) > 1 or not digits.isdecimal() or not digits.isascii():
        return None
    return 0.0 if sign == "-" else min(float(digits), 1e9)


def refusal(status: int, content_type: str, body: bytes) -> str:
    """What an answer that is no 2xx means, or an empty one; "" for one that can be read."""
    if 200 <= status <= 206:
        if body:
            return ""
        return f"0-length response with status code: {status} and content type: {content_type or 'application/json'}"
    message = "unknown"
    if not content_type or content_type.strip().lower().startswith("text/"):
        message = body[:MOST_TEXT].decode("utf-8", "replace").strip()
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


def unread(why: str) -> str:
    """An answer began, and did not come to its end."""
    return f"unexpected error when reading response body. Please retry. Original error: {why}"


def words(error: Exception) -> str:
    """Go's text for an error of the connection."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        return f"dial tcp {error.host}:{error.port}: connect: {_system(cause)}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "unexpected EOF"
    if isinstance(error, OSError):
        return _system(error)
    return str(error) or type(error).__name__


def _certificate(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in (18, 19, 20, 21):
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    return f"tls: failed to verify certificate: x509: {error}"


def _system(error: OSError) -> str:
    known = error.errno is not None and error.errno in errno.errorcode
    return os.strerror(error.errno).lower() if known and error.errno else str(error)
