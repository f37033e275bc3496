"""Where the store is: one server, sentinels that know the primary of a name, or some nodes of a cluster.

    redis://USER:PASSWORD@HOST:PORT/DB                           one server; rediss:// with TLS
    unix:///PATH?db=0                                            one server on a socket
    redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME      sentinels; rediss+sentinel:// with TLS to them and to the store
    redis+cluster://USER:PASSWORD@HOST:PORT,HOST:PORT            nodes of a cluster, which know the others; rediss+cluster:// with TLS

`valkey` and `valkeys` mean the same as `redis` and `rediss`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

SENTINEL_PORT = 26379
STORE_PORT = 6379
_TLS = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_EXPECTED = (
    "must begin with redis://, rediss://, valkey://, valkeys:// or unix://, or with redis+sentinel:// or redis+cluster:// "
    "(rediss+… with TLS)"
)


@dataclass(frozen=True, slots=True)
class Node:
    """A server or a sentinel."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store's URL. `url` is that of one server, empty when sentinels or a cluster must be asked for it."""

    url: str
    sentinels: tuple[Node, ...] = ()
    cluster: tuple[Node, ...] = ()
    """Some nodes of a cluster."""
    name: str = ""
    """The name of the primary, as the sentinels know it."""
    scheme: str = ""
    user: str = ""
    """User and password for the store's servers as they are in the URL, with the `@`."""
    query: str = ""

    @property
    def tls(self) -> bool:
        return (self.scheme or self.url).startswith("rediss")

    def of_store(self, node: Node) -> str:
        """Return the URL of a server of the store that a sentinel or the cluster named."""
        return f"{self.scheme}://{self.user}{node}/{self.query}"

    def of_sentinel(self, node: Node) -> str:
        """Return the URL of a sentinel. It has neither the store's user nor a database, but the same TLS."""
        tls = "&".join(part for part in self.query.removeprefix("?").split("&") if part.startswith("ssl_"))
        return f"{self.scheme}://{node}/" + (f"?{tls}" if tls else "")


def parse(text: str) -> StoreAddress:
    """Parse a store's URL. Raises ValueError, whose text never shows the value, because that may hold a password."""
    url = _split(text)
    first, _, form = url.scheme.partition("+")
    if first == "unix" and not form:
        if not url.path:
            raise ValueError("names no socket")
        return StoreAddress(text)
    scheme = _TLS.get(first)
    if scheme is None or form not in ("", "sentinel", "cluster"):
        raise ValueError(_EXPECTED)
    if form == "cluster":
        return _cluster(url, scheme)
    return _sentinels(url, scheme) if form else _one(url, scheme)


def shown(text: str) -> str:
    """Return the server or sentinels of a URL that can be parsed, without user, password and query."""
    url = _split(text)
    return url.netloc.rpartition("@")[2] or url.path


def _split(text: str) -> SplitResult:
    """Return the parts of a URL. `urlsplit` of some Python versions refuses several hosts of which one is an IPv6 address."""
    scheme, delimiter, rest = text.partition("://")
    if not delimiter:
        return urlsplit("")
    hosts = re.split("[/?#]", rest, maxsplit=1)[0]
    where = urlsplit(rest[len(hosts) :])
    return where._replace(scheme=scheme.lower(), netloc=hosts)


def _one(url: SplitResult, scheme: str) -> StoreAddress:
    if "," in url.netloc.rpartition("@")[2]:
        raise ValueError(
            "names several servers: name one, sentinels with redis+sentinel://…/NAME, or nodes of a cluster with redis+cluster://"
        )
    try:
        one = urlsplit(f"//{url.netloc}")
        _ = one.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if not one.hostname:
        raise ValueError("names no host")
    return StoreAddress(url._replace(scheme=scheme).geturl())


def _sentinels(url: SplitResult, scheme: str) -> StoreAddress:
    user, at, hosts = url.netloc.rpartition("@")
    name = unquote(url.path.strip("/"))
    if not name or "/" in name:
        raise ValueError(
            "must end with the name of the primary, as the sentinels know it: redis+sentinel://HOST:PORT,…/NAME"
        )
    _check_db(url)
    return StoreAddress("", _nodes(hosts, SENTINEL_PORT), (), name, scheme, user + at, _query(url))


def _cluster(url: SplitResult, scheme: str) -> StoreAddress:
    user, at, hosts = url.netloc.rpartition("@")
    db = _check_db(url)
    if url.path.strip("/") not in ("", "0") or db:
        raise ValueError("names a database: in a cluster Sluice uses database 0")
    return StoreAddress("", (), _nodes(hosts, STORE_PORT), "", scheme, user + at, _query(url))


def _check_db(url: SplitResult) -> int:
    """Return the database that the query names. Raises ValueError."""
    db = parse_qs(url.query, keep_blank_values=True).get("db", ["0"])[0]
    if not db.isdecimal():
        raise ValueError("has a db that is no number")
    return int(db)


def _query(url: SplitResult) -> str:
    return f"?{url.query}" if url.query else ""


def _nodes(hosts: str, port: int) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(_node(part, port) for part in hosts.split(",")))


def _node(text: str, otherwise: int) -> Node:
    try:
        one = urlsplit(f"//{text}")
        port = one.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if not one.hostname or "@" in text:
        raise ValueError("names a server without host")
    return Node(one.hostname, port or otherwise)
