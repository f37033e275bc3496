"""TLS between two buffers in memory: OpenSSL never reads or writes a socket. Knows no event loop.

Servers use pyOpenSSL: Python's `ssl` cannot limit the groups (before 3.15), and cannot ask for a client certificate without judging its
chain. Clients use `ssl`, whose errors aiohttp, redis-py and this project handle.

pyOpenSSL configures contexts and connections. The calls of each read and write go to OpenSSL directly, because through pyOpenSSL they
cost twice as much. They use three attributes of its `Connection`: `_ssl`, `_into_ssl` and `_from_ssl`.
"""

from __future__ import annotations

import socket
import ssl
import threading
from typing import Any, Protocol

from cryptography.hazmat.bindings.openssl.binding import Binding
from OpenSSL import SSL, crypto

from apiserver.runtime.tls_records import CutOff, Records

RECORD = 16 << 10
"""The most application data that one record holds, and that one call reads."""
PIECE = 64 << 10
"""The most that is encrypted in one call."""
_OVERHEAD = 512
"""Bytes that the records of a piece add to it, and pending post-handshake messages."""
SMALL = 4 << 10
"""OpenSSL's buffers grow and never shrink. Buffers that held more are replaced, so that an idle connection takes little memory."""

_lib: Any = Binding.lib
_ffi: Any = Binding.ffi


class Session(Protocol):
    """One end of a TLS connection. Errors are ssl.SSLError."""

    records: Records

    @property
    def info(self) -> object:
        """The `ssl_object` of a transport."""

    @property
    def context(self) -> object: ...

    def feed(self, data: bytes) -> None:
        """Take data from the peer. Follow with `shake` or `read` until they raise SSLWantReadError."""

    def shake(self) -> None:
        """Go on with the handshake. Raise SSLWantReadError until it is complete."""

    def read(self) -> bytes:
        """Return application data, b"" at the peer's close_notify. Raise SSLWantReadError without data."""

    def eof(self) -> None:
        """Handle a socket that was closed without close_notify. Raise CutOff if that may have cut data off."""

    def trim(self) -> None:
        """Free memory. Call it after `read` has raised SSLWantReadError, when all fed data was used."""

    def encrypt(self, data: bytes | bytearray | memoryview) -> memoryview | bytes:
        """Return what to send for up to PIECE bytes, with all pending output. Valid until the next call of any session."""

    def output(self) -> memoryview | bytes:
        """Return pending output: handshake messages, alerts. Valid until the next call of any session."""

    def end(self) -> memoryview | bytes:
        """Return the close_notify to send."""


class _Buffers(threading.local):
    """OpenSSL's input and output buffers, shared by the sessions of a thread."""

    def __init__(self) -> None:
        self.plain, self.sealed = memoryview(bytearray(RECORD)), memoryview(bytearray(PIECE + _OVERHEAD))
        self.plain_pointer, self.sealed_pointer = _ffi.from_buffer(self.plain), _ffi.from_buffer(self.sealed)


_BUFFERS = _Buffers()
_NOTHING = b""


class ServerSession:
    """The server's end. It proves that the client holds its certificate's key, and does not judge the certificate."""

    __slots__ = ("_buffers", "_connection", "_grown", "_incoming", "_outgoing", "_ssl", "records")

    def __init__(self, context: SSL.Context, sock: socket.socket | None) -> None:
        connection = SSL.Connection(context, None)
        connection.set_app_data(sock)
        connection.set_accept_state()
        self._connection = connection
        self._ssl, self._incoming, self._outgoing = connection._ssl, connection._into_ssl, connection._from_ssl
        self._buffers = _BUFFERS
        self._grown = False
        """OpenSSL's input buffer is larger than SMALL."""
        self.records = Records()

    @property
    def info(self) -> ServerSession:
        return self

    @property
    def context(self) -> SSL.Context:
        return self._connection.get_context()

    def version(self) -> str:
        return self._connection.get_protocol_version_name()

    def peer_certificates(self, most: int) -> list[bytes]:
        """Return the first certificates that the client sent (DER), its own first. The client has proven that it holds that one's key."""
        leaf = self._connection.get_peer_certificate()
        if leaf is None:
            return []
        return [
            crypto.dump_certificate(crypto.FILETYPE_ASN1, certificate)
            for certificate in (leaf, *(self._connection.get_peer_cert_chain() or ())[: most - 1])
        ]

    def feed(self, data: bytes) -> None:
        self._grown = self._grown or len(data) > SMALL
        _lib.BIO_write(self._incoming, data, len(data))

    def shake(self) -> None:
        _lib.ERR_clear_error()
        result = _lib.SSL_do_handshake(self._ssl)
        if result != 1:
            raise self._failure(result)
        self.records.open = True

    def read(self) -> bytes:
        buffers = self._buffers
        _lib.ERR_clear_error()
        size = _lib.SSL_read(self._ssl, buffers.plain_pointer, RECORD)
        if size > 0:
            return bytes(buffers.plain[:size])
        # No variable may hold the error: its traceback would hold this frame, and only the garbage collector would free both.
        if _lib.SSL_get_error(self._ssl, size) == _lib.SSL_ERROR_ZERO_RETURN:
            return b""
        raise self._failure(size)

    def eof(self) -> None:
        pass  # the length of each request is known, and many clients close this way

    def trim(self) -> None:
        if self._grown:
            self._grown = False
            self._incoming = _lib.BIO_new(_lib.BIO_s_mem())
            _lib.SSL_set_bio(self._ssl, self._incoming, self._outgoing)

    def encrypt(self, data: bytes | bytearray | memoryview) -> memoryview | bytes:
        size = len(data)
        if size > RECORD:
            return self._encrypt_records(data, size)
        result = _lib.SSL_write(self._ssl, data if type(data) is bytes else _ffi.from_buffer(data), size)
        if result != size:
            raise self._failure(result)
        sealed = self.output()
        if size > SMALL:
            self._shrink()
        return sealed

    def _encrypt_records(self, data: bytes | bytearray | memoryview, size: int) -> memoryview | bytes:
        """Encrypt one record at a time. OpenSSL's buffer would copy its contents each time that it grows."""
        plain, sealed = _ffi.from_buffer(data), self._buffers.sealed
        pointer, end, capacity = self._buffers.sealed_pointer, 0, len(sealed)
        for at in range(0, size, RECORD):
            length = min(RECORD, size - at)
            result = _lib.SSL_write(self._ssl, plain + at, length)
            if result != length:
                raise self._failure(result)
            if end < capacity:
                end += max(0, _lib.BIO_read(self._outgoing, pointer + end, capacity - end))
        # Many short records, as a client may ask for (RFC 6066 section 4).
        whole = sealed[:end] if end < capacity else bytes(sealed) + self.output()
        self._shrink()
        return whole

    def _shrink(self) -> None:
        self._outgoing = _lib.BIO_new(_lib.BIO_s_mem())
        _lib.SSL_set_bio(self._ssl, self._incoming, self._outgoing)

    def output(self) -> memoryview | bytes:
        sealed = self._buffers.sealed
        size = _lib.BIO_read(self._outgoing, self._buffers.sealed_pointer, len(sealed))
        if size <= 0:
            return _NOTHING
        if size < len(sealed):
            return sealed[:size]
        # Many short records, as a client may ask for (RFC 6066 section 4).
        return bytes(sealed) + self.output()

    def end(self) -> memoryview | bytes:
        _lib.ERR_clear_error()
        _lib.SSL_shutdown(self._ssl)
        return self.output()

    def _failure(self, result: int) -> ssl.SSLError:
        """Return the error of a failed call."""
        error = _lib.SSL_get_error(self._ssl, result)
        if error == _lib.SSL_ERROR_WANT_READ:
            return ssl.SSLWantReadError()
        if error == _lib.SSL_ERROR_ZERO_RETURN:
            return ssl.SSLZeroReturnError()
        code = last = _lib.ERR_get_error()
        while code := _lib.ERR_get_error():
            last = code
        reason = _lib.ERR_reason_error_string(last)
        return ssl.SSLError(ssl.SSL_ERROR_SSL, "TLS failed" if reason == _ffi.NULL else _ffi.string(reason).decode())


class ClientSession:
    """The client's end. `name` is the server's, for SNI and for its certificate."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "records")

    def __init__(self, context: ssl.SSLContext, name: str | None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self.records = Records(hello=True)

    @property
    def info(self) -> ssl.SSLObject:
        return self._tls

    @property
    def context(self) -> ssl.SSLContext:
        return self._tls.context

    def feed(self, data: bytes) -> None:
        self._incoming.write(data)

    def shake(self) -> None:
        self._tls.do_handshake()
        self.records.open = True

    def read(self) -> bytes:
        return self._tls.read(RECORD)

    def eof(self) -> None:
        raise CutOff(whole=self.records.whole)

    def trim(self) -> None:
        pass

    def encrypt(self, data: bytes | bytearray | memoryview) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def output(self) -> bytes:
        return self._outgoing.read()

    def end(self) -> bytes:
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):  # it would wait for the peer's close_notify, or the session is over
            pass
        return self._outgoing.read()
