"""`url("https://example.com:80/path?query")`: absolute URLs and their parts.

Upstream: kubernetes/apiserver `pkg/cel/library/urls.go`, `pkg/cel/url.go`; Go `net/url`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kubecel.check.declarations import CallEstimate, Estimator, Function, Library, Node, Range
from kubecel.libraries import ip
from kubecel.libraries.costs import DEFAULT, NOMINAL, READING, TRAVERSAL, Cost, function, member
from kubecel.values.errors import EvaluationError
from kubecel.values.quoting import quoted
from kubecel.values.types import BOOL, STRING, list_of, map_of, struct

URL = struct("kubernetes.URL")

_ALPHANUMERIC = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_IN_HOSTS = b"-_.~!$&'()*+,;=:[]<>\""
# Go does not parse more parameters than this.
_PARAMETERS = 10_000


class _Mode:
    """A part of a URL: the bytes that need no escape in it, and the bytes that are forbidden."""

    __slots__ = ("escapes", "plain", "query", "special", "zone")

    def __init__(self, plain: bytes, *, host: bool = False, zone: bool = False, query: bool = False) -> None:
        self.plain = frozenset(_ALPHANUMERIC + plain)
        # The escaped form of each byte.
        self.escapes = [bytes((byte,)) if byte in self.plain else b"%%%02X" % byte for byte in range(256)]
        # Matches bad bytes: in hosts all escapes and the ASCII characters that are forbidden, elsewhere invalid
        # escapes.
        barred = b"%([0-9A-Fa-f]{2})?|[^%\\x80-\\xff" + re.escape(_ALPHANUMERIC + plain) + b"]"
        self.special = re.compile(barred if host else b"%(?![0-9A-Fa-f]{2})")
        self.zone = zone
        self.query = query


_PATH = _Mode(b"-_.~$&+,/:;=@")
_HOST = _Mode(_IN_HOSTS, host=True)
_ZONE = _Mode(_IN_HOSTS, host=True, zone=True)
_USER = _Mode(b"-_.~$&+,;=")
_QUERY = _Mode(b"-_.~", query=True)
_FRAGMENT = _Mode(b"-_.~$&+,/:;=?@!()*")

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_SCHEME = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)?:")
_PORT = re.compile(rb"(?::[0-9]*)?")
_USER_INFO = re.compile(rb"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
# A path or a fragment that is already escaped, by Go's rules.
_ESCAPED = re.compile(rb"[A-Za-z0-9_.~!$&'()*+,;=:@%\[\]/-]*")


class _UrlError(Exception):
    """Go's error about a URL, without the URL."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a URL, as bytes. Parts with several escaped forms are kept twice: unescaped, and as written."""

    scheme: bytes = b""
    opaque: bytes = b""
    user: tuple[bytes, ...] | None = None
    host: bytes = b""
    path: bytes = b""
    written_path: bytes = b""
    query: bytes | None = None
    fragment: bytes = b""
    written_fragment: bytes = b""
    hostless: bool = False

    def text(self) -> bytes:
        """Return the URL as Go writes it."""
        parts = [self.scheme, b":"] if self.scheme else []
        if self.opaque:
            parts.append(self.opaque)
        else:
            parts += self._authority()
            path = _escaped_as_written(self.path, self.written_path, _PATH)
            if path and not path.startswith(b"/") and self.host:
                parts.append(b"/")
            parts.append(path)
        if self.query is not None:
            parts += (b"?", self.query)
        if self.fragment:
            parts += (b"#", _escaped_as_written(self.fragment, self.written_fragment, _FRAGMENT))
        return b"".join(parts)

    def _authority(self) -> list[bytes]:
        if self.hostless or not (self.scheme or self.host or self.user is not None):
            return []
        parts = [b"//"] if self.host or self.path or self.user is not None else []
        if self.user is not None:
            parts += (b":".join(_escaped(part, _USER) for part in self.user), b"@")
        parts.append(_escaped(self.host, _HOST))
        return parts


class Url:
    """A URL in an expression. Two are equal when Go writes them alike."""

    __slots__ = ("_parts",)

    cel_type = URL
    go_type = "cel.URL"
    go_native = "*url.URL"

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    @property
    def scheme(self) -> str:
        """Return the scheme in lower case, without the colon."""
        return _text(self._parts.scheme)

    @property
    def host(self) -> str:
        """Return host and port, unescaped."""
        return _text(self._parts.host)

    @property
    def hostname(self) -> str:
        """Return the host without its port and brackets."""
        return _text(_host_and_port(self._parts.host)[0])

    @property
    def port(self) -> str:
        """Return the digits after the last colon, "" without any."""
        return _text(_host_and_port(self._parts.host)[1])

    @property
    def path(self) -> str:
        """Return the escaped path, as written if that is valid."""
        return _text(_escaped_as_written(self._parts.path, self._parts.written_path, _PATH))

    @property
    def query(self) -> dict[str, list[str]]:
        """Return the values of each parameter. Malformed ones are left out."""
        values: dict[str, list[str]] = {}
        pairs = (self._parts.query or b"").split(b"&")
        if len(pairs) > _PARAMETERS:
            return {}
        for pair in pairs:
            if not pair or b";" in pair:
                continue
            key, _, value = pair.partition(b"=")
            try:
                name, content = _unescaped(key, _QUERY), _unescaped(value, _QUERY)
            except _UrlError:
                continue
            values.setdefault(_text(name), []).append(_text(content))
        return values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Url):
            raise EvaluationError("no such overload")
        return self._parts.text() == other._parts.text()

    def __hash__(self) -> int:
        return hash(self._parts.text())

    def __str__(self) -> str:
        return _text(self._parts.text())


def _text(of: bytes) -> str:
    """Return bytes as text. Bytes that are not UTF-8, which a URL may escape, are replaced."""
    return of.decode(errors="replace")


def _shown(of: bytes) -> str:
    return quoted(of.decode(errors="surrogateescape"))


# Escapes


def _escaped(part: bytes, mode: _Mode) -> bytes:
    return b"".join(map(mode.escapes.__getitem__, part))


def _escaped_as_written(part: bytes, written: bytes, mode: _Mode) -> bytes:
    """Return a part with its necessary escapes. If the written form has more escapes and is valid, return that."""
    if written and _ESCAPED.fullmatch(written.replace(b"?", b"") if mode is _FRAGMENT else written):
        return written
    return b"*" if part == b"*" and mode is _PATH else _escaped(part, mode)


def _unescaped(part: bytes, mode: _Mode) -> bytes:
    for match in mode.special.finditer(part):
        escape = match.group()
        if not escape.startswith(b"%"):
            raise _UrlError(f"invalid character {_shown(escape)} in host name")
        if len(escape) == 1 or not _in_host(escape[1:], zone=mode.zone):
            raise _UrlError(f"invalid URL escape {_shown(part[match.start() : match.start() + 3])}")
    if mode.query:
        part = part.replace(b"+", b" ")
    first, *rest = part.split(b"%")
    return first + b"".join([bytes.fromhex(piece[:2].decode()) + piece[2:] for piece in rest])


def _in_host(digits: bytes, *, zone: bool) -> bool:
    """Return whether a host, or a zone, may contain an escape.

    A host may escape bytes outside ASCII, a zone the bytes that a host may contain.
    """
    if digits == b"25":
        return True
    byte = int(digits, 16)
    return byte == ord(" ") or byte in _HOST.plain if zone else byte >= 0x80


# Parsing


def _parse(url: bytes, *, request: bool) -> _Parts:
    """Return the parts of a URL. A `request` must be absolute, and has no fragment."""
    if _CONTROL.search(url):
        raise _UrlError("net/url: invalid control character in URL")
    if not url and request:
        raise _UrlError("empty url")
    if url == b"*":
        return _Parts(path=b"*")
    match = _SCHEME.match(url)
    if match is not None and match[1] is None:
        raise _UrlError("missing protocol scheme")
    scheme = b"" if match is None else match[1].lower()
    rest, mark, query = url[0 if match is None else match.end() :].partition(b"?")
    parts = _Parts(scheme=scheme, query=query if query or (mark and not query) else None)
    if not rest.startswith(b"/"):
        if scheme:
            return replace(parts, opaque=rest)
        if request:
            raise _UrlError("invalid URI for request")
        if b":" in rest.partition(b"/")[0]:
            raise _UrlError("first path segment in URL cannot contain colon")
    if rest.startswith(b"//") and (scheme or not (request or rest.startswith(b"///"))):
        authority, slash, path = rest[2:].partition(b"/")
        user, host = _authority(scheme, authority)
        parts, rest = replace(parts, user=user, host=host), slash + path
    elif scheme and rest.startswith(b"/"):
        parts = replace(parts, hostless=True)
    path = _unescaped(rest, _PATH)
    return replace(parts, path=path, written_path=b"" if _escaped(path, _PATH) == rest else rest)


def _authority(scheme: bytes, authority: bytes) -> tuple[tuple[bytes, ...] | None, bytes]:
    """Return user, password if there is one, and host."""
    info, at, host = authority.rpartition(b"@")
    host = _host(scheme, host)
    if not at:
        return None, host
    if _USER_INFO.fullmatch(info) is None:
        raise _UrlError("net/url: invalid userinfo")
    return tuple(_unescaped(part, _USER) for part in info.split(b":", 1)), host


def _host(scheme: bytes, host: bytes) -> bytes:
    bracket = host.rfind(b"[")
    if bracket > 0:
        raise _UrlError("invalid IP-literal")
    if bracket == 0:
        return _address(host)
    if b":" in host:
        strict = scheme in (b"http", b"https")
        _check_port(host[host.index(b":") if strict else host.rindex(b":") :])
    return _unescaped(host, _HOST)


def _address(host: bytes) -> bytes:
    """Return an IPv6 address in brackets, unescaped, with its zone and port if there are any."""
    end = host.rfind(b"]")
    if end < 0:
        raise _UrlError("missing ']' in host")
    _check_port(host[end + 1 :])
    address, zone = host[1:end], host[1:end].find(b"%25")
    if zone >= 0:
        literal = _unescaped(address[:zone], _HOST) + _unescaped(address[zone:], _ZONE)
    else:
        literal = _unescaped(address, _HOST)
    try:
        found, _ = ip.parse(literal.decode(errors="surrogateescape"))
    except ip.AddressError as error:
        raise _UrlError(f"invalid host: {error}") from None
    if found.bits == 32:
        raise _UrlError("invalid IP-literal")
    return b"[" + literal + b"]" + host[end + 1 :]


def _check_port(port: bytes) -> None:
    if _PORT.fullmatch(port) is None:
        raise _UrlError(f"invalid port {_shown(port)} after host")


def _host_and_port(host: bytes) -> tuple[bytes, bytes]:
    name, colon, port = host.rpartition(b":")
    if not colon or not (port.isdigit() or not port):
        name, port = host, b""
    if name.startswith(b"[") and name.endswith(b"]"):
        name = name[1:-1]
    return name, port


def request_uri(text: str) -> str | None:
    """Return Go's error for a text that is not an absolute URL or path (`url.ParseRequestURI`); None for a valid one."""
    try:
        _parse(text.encode(errors="surrogatepass"), request=True)
    except _UrlError as error:
        return f"parse {quoted(text)}: {error}"
    return None


def scheme(text: str) -> str:
    """Return the scheme of a text that Go's `url.Parse` accepts. Raises ValueError with Go's error."""
    address, _, fragment = text.partition("#")
    try:
        found = _parse(address.encode(errors="surrogatepass"), request=False).scheme
    except _UrlError as error:
        raise ValueError(f"parse {quoted(address)}: {error}") from None
    try:
        _unescaped(fragment.encode(errors="surrogatepass"), _FRAGMENT)
    except _UrlError as error:
        raise ValueError(f"parse {quoted(text)}: {error}") from None
    return _text(found)


def host(text: str) -> str | None:
    """Return host and port of a text that Go's `url.Parse` accepts; None otherwise."""
    address, _, fragment = text.partition("#")
    try:
        parts = _parse(address.encode(errors="surrogatepass"), request=False)
        _unescaped(fragment.encode(errors="surrogatepass"), _FRAGMENT)
    except _UrlError:
        return None
    return _text(parts.host)


def _url(text: str) -> Url:
    problem = request_uri(text)
    if problem is not None:
        raise EvaluationError(f"URL parse error during conversion from string: {problem}")
    # Parse again, now with a fragment.
    try:
        return Url(_reference(text))
    except ValueError as error:
        raise EvaluationError(f"URL parse error during conversion from string: {error}") from None


def _reference(text: str) -> _Parts:
    """Return the parts of a URL with its fragment (`url.Parse`). Raises ValueError with Go's error."""
    address, _, fragment = text.partition("#")
    shown = address
    try:
        parts = _parse(address.encode(errors="surrogatepass"), request=False)
        if fragment:
            shown = text
            written = fragment.encode(errors="surrogatepass")
            plain = _unescaped(written, _FRAGMENT)
            as_written = b"" if _escaped(plain, _FRAGMENT) == written else written
            parts = replace(parts, fragment=plain, written_fragment=as_written)
    except _UrlError as error:
        raise ValueError(f"parse {quoted(shown)}: {error}") from None
    return parts


class Reference(NamedTuple):
    """The parts of a URL. `user` is None without user information; otherwise it is as Go writes it."""

    scheme: str
    host: str
    user: str | None
    query: str
    fragment: str


def reference(text: str) -> Reference:
    """Return the parts of a URL that need not be absolute (`url.Parse`). Raises ValueError with Go's error."""
    parts = _reference(text)
    user = None if parts.user is None else _text(b":".join(_escaped(part, _USER) for part in parts.user))
    return Reference(_text(parts.scheme), _text(parts.host), user, _text(parts.query or b""), _text(parts.fragment))


def _is_url(text: str) -> bool:
    return request_uri(text) is None


# Costs


def _url_estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    length = estimator.size(arguments[0])
    return CallEstimate(length.scaled(TRAVERSAL), length)


def _equality_estimate(_estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    # Upstream reads the right side for both.
    length = arguments[1].computed_size
    return CallEstimate(Range(1, 1 if length is None else length.most).scaled(TRAVERSAL))


_PARSING = Cost(_url_estimate, READING.charge)


def _accessor(name: str, overload: str, attribute: str) -> Function:
    return Function(name, (member(overload, (URL,), STRING, lambda url: getattr(url, attribute), cost=NOMINAL),))


LIBRARY = Library(
    name="kubernetes.urls",
    types=(URL,),
    equality={URL: _equality_estimate},
    functions=(
        Function("url", (function("string_to_url", (STRING,), URL, _url, cost=_PARSING),)),
        _accessor("getScheme", "url_get_scheme", "scheme"),
        _accessor("getHost", "url_get_host", "host"),
        _accessor("getHostname", "url_get_hostname", "hostname"),
        _accessor("getPort", "url_get_port", "port"),
        _accessor("getEscapedPath", "url_get_escaped_path", "path"),
        Function(
            "getQuery",
            (member("url_get_query", (URL,), map_of(STRING, list_of(STRING)), lambda url: url.query, cost=NOMINAL),),
        ),
        Function("isURL", (function("is_url_string", (STRING,), BOOL, _is_url, cost=DEFAULT),)),
    ),
)
