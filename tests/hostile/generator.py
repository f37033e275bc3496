"""A seeded stream of hostile requests: one family for each place of a request that a client controls.

A request is drawn as the bytes that go through the socket, so that nothing between here and the server repairs it. Sizes are drawn evenly
over their logarithm up to the limits of the server, and now and then just above them.
"""

from __future__ import annotations

import base64
import copy
import gzip
import itertools
import json
import random
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any
from urllib.parse import quote

from tests.fixtures import protobuf
from tests.hostile import custom, handshakes
from tests.hostile.forms import ACCEPTS, BODY, HEADERS, INITIAL, JSON, PATCHES, PROTOBUF, STANDING, YAML, Hostile, named

GROUP = "resource.sluice.dev"
ROOT = f"/apis/{GROUP}/v1"
VERSIONS = ("v1", "v1", "v1", "v1beta1", "v1beta2")
COLLECTIONS = {
    "ResourceSlice": f"{ROOT}/resourceslices",
    "DeviceClass": f"{ROOT}/deviceclasses",
    "ResourceClaim": f"{ROOT}/namespaces/hostile/resourceclaims",
    "ResourceClaimTemplate": f"{ROOT}/namespaces/hostile/resourceclaimtemplates",
}
KINDS = tuple(COLLECTIONS)
SPECS: dict[str, dict[str, Any]] = {
    "ResourceSlice": {
        "driver": "gpu.example.com",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "x"}}}],
    },
    "DeviceClass": {"config": [{"opaque": {"driver": "gpu.example.com", "parameters": {}}}]},
    "ResourceClaim": {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
    "ResourceClaimTemplate": {
        "spec": {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
    },
}
OLDEST_SPECS: dict[str, dict[str, Any]] = {
    **SPECS,
    "ResourceSlice": {**SPECS["ResourceSlice"], "devices": [{"name": "gpu-0", "basic": {}}]},
    "ResourceClaim": {"devices": {"requests": [{"name": "main", "deviceClassName": "gpu.example.com"}]}},
    "ResourceClaimTemplate": {
        "spec": {"devices": {"requests": [{"name": "main", "deviceClassName": "gpu.example.com"}]}}
    },
}
"""As v1beta1 has them."""
METADATA = (
    *("labels", "annotations", "ownerReferences", "finalizers", "managedFields", "name", "uid", "generation"),
    *("creationTimestamp", "resourceVersion", "deletionTimestamp", "x"),
)
REFUSALS = "refusals"
"""The family whose requests are refused, and held to the budget of a refusal."""

SELDOM = 0.8
"""The share of definitions in whose place another family is drawn: a changed definition is served after a second or two."""


class Generator:
    """Draws requests. Each is drawn by itself, from the seed, its number and its family: to have the thousandth again, the 999 before it
    need not be drawn."""

    def __init__(self, seed: int, *, most: int = BODY, heads: bool = False, customs: bool = False) -> None:
        """`most`: the largest body, in bytes; `heads`: only what anybody may send before it is known who it is; `customs`: only custom
        resources and their definitions."""
        self._seed = seed
        self.most = most
        self._heads, self._customs = heads, customs
        self._families = HEADS if heads else tuple(sorted(custom.FAMILIES if customs else FAMILIES))
        self._next = 0
        self._begin(0, "")

    def __iter__(self) -> Iterator[Hostile]:
        return self.numbered(0)

    def numbered(self, first: int) -> Iterator[Hostile]:
        """All from that number on."""
        return (self.at(number) for number in itertools.count(first))

    def only(self, families: Iterable[str], first: int = 0) -> Iterator[Hostile]:
        """One of each of these families in their order, behind what it follows."""
        for number, family in enumerate(families, start=first):
            request = self.at(number, family)
            if request.follows is not None:
                yield self.at(request.follows)
            yield request

    def draw(self, family: str) -> Hostile:
        """The next request, of that family."""
        self._next += 1
        return self.at(self._next - 1, family)

    def again(self, request: Hostile) -> str:
        """The arguments of `make hostile` that send it again."""
        options = {"--seed": self._seed, "--only": request.number, "--largest": self.most}
        words = [f"{name} {value}" for name, value in options.items() if name != "--largest" or value != BODY]
        if self._family(request.number) != request.family:
            words.append(f'--family "{request.family}"' if " " in request.family else f"--family {request.family}")
        words += ["--heads"] * self._heads + ["--custom"] * self._customs
        return " ".join(words)

    def at(self, number: int, family: str | None = None) -> Hostile:
        """The request of that number; of another family than the seed has for it, if one is named."""
        family = family or self._family(number)
        self._begin(number, family)
        drawn = FAMILIES[family](self, family)
        return replace(drawn, number=number, follows=self._follows, anonymous=drawn.anonymous or self._heads)

    def _begin(self, number: int, family: str) -> None:
        self._random = random.Random(f"{self._seed}/{number}/{family}")
        self.number = number
        self._follows: int | None = None
        self._version = self.pick(VERSIONS)

    def _family(self, number: int) -> str:
        drawn = random.Random(f"{self._seed}/{number}")
        family = drawn.choice(self._families)
        if family == custom.DEFINITION and drawn.random() < SELDOM:
            family = drawn.choice(self._families)
        return family

    # Sizes and texts.

    def size(self, most: int, *, least: int = 1) -> int:
        """Evenly over the logarithm, so that small, middling and largest are all drawn often."""
        if self._random.random() < 0.1:
            return most
        return int(least * (most / least) ** self._random.random())

    def text(self, length: int, alphabet: str = string.ascii_lowercase) -> str:
        """A text of that many characters in which a short piece recurs: cheap to draw, and the worst for most parsers."""
        piece = "".join(self._random.choices(alphabet, k=self._random.randint(1, 8)))
        return (piece * (length // len(piece) + 1))[:length]

    def any_text(self, length: int) -> str:
        """A text of characters that escape, quote, count double, or have a meaning in some syntax."""
        return self.text(
            length, self.pick(('"\\/', "\x01\x1f\x7f", "é😀\u2028", "<>&'%+", ",;=:!()~*", string.printable))
        )

    def digits(self, most: int) -> str:
        return self.pick(("", "-", "+", "0")) + self.text(self.size(most), string.digits)

    def pick(self, of: Sequence[str]) -> str:
        return self._random.choice(of)

    def one_of(self, of: Sequence[Callable[[], str]]) -> str:
        """Makes one of several long texts, and none of the others."""
        return self._random.choice(of)()

    def often(self, share: float) -> bool:
        return self._random.random() < share

    # Requests.

    def request(
        self,
        family: str,
        *,
        method: str = "GET",
        path: str | None = None,
        headers: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        version: str = "HTTP/1.1",
        anonymous: bool | None = None,
    ) -> Hostile:
        lines = [f"{method} {path or self.collection()} {version}", "Host: server"]
        lines += [f"{name}: {value}" for name, value in headers or []]
        if body is not None:
            body = body[: BODY + 4096]
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n"
        return Hostile(family, head, body or b"", self.often(0.3) if anonymous is None else anonymous)

    def collection(self, kind: str = "") -> str:
        """In the version that was drawn for this request."""
        return COLLECTIONS[kind or self.pick(KINDS)].replace(ROOT, f"/apis/{GROUP}/{self._version}")

    def kind(self) -> str:
        """The one that requests of this number are about."""
        return KINDS[self.number % len(KINDS)]

    def item(self, kind: str, name: str = STANDING) -> str:
        return f"{self.collection(kind)}/{name}"

    # Headers.

    def accept(self, family: str) -> Hostile:
        clauses = (
            "*",
            "a/b",
            "*/*;q=0.1",
            "a/*",
            "text/html;q=0.9",
            "application/json;as=Table",
            "application/json;q=",
            ";;;",
            "q=1e400",
        )
        chosen = [self.pick(clauses) for _ in range(self._random.randint(1, 3))]
        header = ",".join(chosen * (self.size(HEADERS - 4096) // (sum(map(len, chosen)) + len(chosen))))
        return self.request(
            family,
            headers=[("Accept", header)],
            path=self.pick([self.collection(), "/openapi/v2", "/apis", "/nothing"]),
        )

    def long_header(self, family: str) -> Hostile:
        names = (
            "Authorization", "User-Agent", "Audit-ID", "Range", "If-None-Match", "Accept-Encoding", "Cookie", "Impersonate-User",
            "Impersonate-Group", "Impersonate-Extra-x%2fy", "X-Remote-User", "X-Remote-Group", "X-Remote-Extra-a", "Content-Type", "Expect",
            "X-Forwarded-For", "Origin", "Connection", "Kubectl-Command",
        )  # fmt: skip
        name = self.pick(names)
        length = self.size(HEADERS - 4096)
        values = {
            "Authorization": self.pick(("Bearer ", "Basic ", "bearer  ", ""))
            + self.text(length, string.ascii_letters + "._-= "),
            "Range": "bytes="
            + self.pick((self.digits(length) + "-", "-" + self.digits(length), ("0-1," * (length // 4))[:-1])),
            "If-None-Match": ('"a",W/"b",' * (length // 10))[:-1],
            "Accept-Encoding": ("gzip;q=0.1,*;q=0," * (length // 17))[:-1],
            "Content-Type": JSON + ";a=b" * (length // 4) + self.pick(("", ";", ';"', ";a")),
        }
        value = values.get(name) or self.text(length, string.ascii_letters + ",;=:/%\\ ").strip()
        path = self.pick(
            [self.collection(), "/openapi/v3", "/openapi/v2", "/livez", "/readyz", "/metrics", "/api", "/x" * 40]
        )
        method = self.pick(("GET", "POST", "PATCH")) if name == "Content-Type" else "GET"
        return self.request(
            family, method=method, path=path, headers=[(name, value)], body=b"{}" if method != "GET" else None
        )

    def many_headers(self, family: str) -> Hostile:
        name = self.pick(
            (
                "Impersonate-Group",
                "X-Remote-Group",
                "Accept",
                "Cookie",
                "X",
                "Impersonate-Extra-a",
                "Authorization",
                "Audit-ID",
            )
        )
        count = self.size(5000)
        return self.request(family, headers=[(name, str(at)) for at in range(count)])

    def protocol(self, family: str) -> Hostile:
        method = self.pick(("INVENT", "CONNECT", "TRACE", "OPTIONS", "HEAD", "get", "A" * self.size(60_000), "PRI"))
        version = self.pick(("HTTP/0.9", "HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "HTTP/3", "HTTP/1.1.1", "http/1.1", ""))
        names = ("Transfer-Encoding", "Content-Length", "Upgrade", "Expect", "Connection")
        values = (
            "chunked",
            "identity",
            "-1",
            "5,5",
            self.digits(5000),
            "websocket",
            "100-continue",
            "close, upgrade",
            "gzip, chunked",
        )
        headers = [(self.pick(names), self.pick(values))] if self.often(0.6) else []
        return self.request(family, method=method, version=version, headers=headers)

    # Paths and queries.

    def path(self, family: str) -> Hostile:
        length = self.size(HEADERS - 4096)
        path = self.pick([
            "/" * length,
            "/" + self.text(length),
            f"{ROOT}/resourceslices/" + quote(self.any_text(length // 6)),
            f"{ROOT}/namespaces/" + self.text(length) + "/resourceclaims",
            ROOT + "/a" * (length // 2),
            "/apis/" + "%2e%2e/" * (length // 7),
            "/" + "%" * length,
            f"{ROOT}/watch/resourceslices/" + self.text(length),
            "/readyz?" + "exclude=a&" * (length // 10),
            "http://" + self.text(length) + "/apis",
        ])  # fmt: skip
        return self.request(family, path=path, method=self.pick(("GET", "GET", "DELETE", "PUT")))

    def selector(self, family: str) -> Hostile:
        names = (
            "a",
            "a.b/c",
            "app",
            "kubernetes.io/hostname",
            "metadata.name",
            "spec.nodeName",
            "spec.driver",
            "metadata.namespace",
        )
        forms = (
            "{}={}", "{}!={}", "{} in ({},{})", "{} notin ({})", "!{}", "{}", "{}>{}", "{}==", "{} in (", "{},,{}", "\\{}={}", "{}={}\\,",
        )  # fmt: skip
        term = self.pick(forms).format(self.pick(names), self.text(self.size(60)), self.text(self.size(60)))
        length, safe = self.size(HEADERS - 8192), ",=!()/" if self.often(0.8) else ""
        if self.often(0.3):
            values = quote(",", safe=safe).join(f"v{at}" for at in range(length // 8))
            text = quote(f"{self.pick(names)} {self.pick(('in', 'notin'))} (") + values + ")"
        else:
            terms = quote(term + ",", safe=safe)
            text = terms * (length // len(terms)) + quote(term, safe=safe)
        query = self.pick(("labelSelector", "fieldSelector")) + "=" + text[:length]
        if self.often(0.4):
            query += "&fieldSelector=metadata.name%3Dstanding"
        if self.often(0.3):
            query += "&watch=1&timeoutSeconds=1" + (INITIAL if self.often(0.5) else "")
        return self.request(family, path=f"{self.collection()}?{query}", method="DELETE" if self.often(0.05) else "GET")

    def shard(self, family: str) -> Hostile:
        """Shard selectors are expressions: nested, endless, valid and long, and malformed ones."""
        term = "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')"
        length = self.size(HEADERS - 8192)
        piece = self.pick((
            "(", "[", "{a:", "a(", "a[", "a.", "a?b:", "!", "-", "a+", "a||", "'", "\\", ")", "\U0001f600", "//", "a.?b",
            term + "||", f"({term})||", f"{term}&&", "shardRange(", f"shardRange({self.text(9)},", "'0x" + "\x07" * 40 + "',",
        ))  # fmt: skip
        quoted = quote(piece)
        text = quoted * (length // len(quoted) + 1)
        if self.often(0.3):
            text = quoted * (length // len(quoted)) + quote(term)
        if self.often(0.2):
            text = quote(f"shardRange(object.metadata.uid,'{self.any_text(min(length // 9, 20_000))}','')")
        query = "shardSelector=" + text[: HEADERS - 8192]
        if self.often(0.3):
            query += "&watch=1&timeoutSeconds=1" + (INITIAL if self.often(0.5) else "")
        return self.request(family, path=f"{self.collection()}?{query}")

    def query(self, family: str) -> Hostile:
        length = self.size(HEADERS - 8192)
        names = (
            "timeout", "timeoutSeconds", "limit", "continue", "resourceVersion", "resourceVersionMatch", "dryRun", "fieldManager",
            "fieldValidation", "pretty", "watch", "sendInitialEvents", "includeObject", "propagationPolicy", "gracePeriodSeconds",
            "allowWatchBookmarks", "orphanDependents", "force", "shardSelector",
        )  # fmt: skip
        name = self.pick(names)
        value = {
            "timeout": lambda: self.pick(("0s", "1h1m", "0.1ns", "-1s", "1", "9", ".", "µs")) * (length // 4),
            "continue": lambda: self._token(length),
        }.get(name, lambda: self.pick((self.digits(length), self.text(length), quote(self.any_text(length // 9)))))()
        shape = self.pick(("one", "many", "pairs"))
        if shape == "many":
            query = f"{name}={value[:50]}&" * (length // (len(name) + 52))
        elif shape == "pairs":
            query = "&".join(f"{self.text(3)}{at}" for at in range(min(length // 8, 12_000)))
        else:
            query = f"{name}={value}"
        method = self.pick(("GET", "GET", "POST", "DELETE"))
        path = self.pick([self.collection(), self.item("DeviceClass"), "/livez", "/openapi/v3"])
        return self.request(family, method=method, path=f"{path}?{query}", body=b"{}" if method == "POST" else None)

    def _token(self, length: int) -> str:
        inside = self.pick([
            json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": self.text(length)}),
            '{"v":"meta.k8s.io/v1","rv":' + "9" * length + ',"start":"a"}',
            "[" * length,
            '{"start":' * (length // 9),
            self.any_text(length // 4),
        ])  # fmt: skip
        return base64.urlsafe_b64encode(inside.encode()).rstrip(b"=").decode()[:length]

    # Bodies.

    def object(self, kind: str) -> dict[str, object]:
        metadata: dict[str, object] = {"name": named(self.number)}
        if "namespaces" in COLLECTIONS[kind]:
            metadata["namespace"] = "hostile"
        return {
            "apiVersion": f"{GROUP}/{self._version}",
            "kind": kind,
            "metadata": metadata,
            "spec": copy.deepcopy((OLDEST_SPECS if self._version == "v1beta1" else SPECS)[kind]),
        }

    def json_body(self, family: str) -> Hostile:
        kind = self.kind()
        return self._send(family, kind, JSON, self.json_text(kind, self.size(self.most)))

    def _send(self, family: str, kind: str, media: str, body: str | bytes) -> Hostile:
        method, path = ("PUT", self.item(kind)) if self.often(0.3) else ("POST", self.collection(kind))
        query = self.pick(
            ("", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldValidation=Warn", "?fieldManager=" + "m" * 200)
        )
        accept = [("Accept", self.pick(ACCEPTS))] if self.often(0.3) else []
        raw = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
        return self.request(
            family,
            method=method,
            path=path + query,
            headers=[("Content-Type", media), *accept],
            body=raw,
            anonymous=False,
        )

    def json_text(self, kind: str, length: int) -> str:
        """An object with one member that was chosen with malice, or no object at all."""
        obj = self.object(kind)
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        hole = "@hole@"
        where = self.pick(("member", "metadata", "list", "spec", "opaque", "bare", "raw"))
        if where == "raw":
            return self.any_text(length)
        filling = self._elements(length) if where == "list" else self.filling(length)
        if where == "bare":
            return filling
        if where == "member":
            obj[self.text(5)] = hole
        elif where == "metadata":
            metadata[self.pick(METADATA)] = hole
        elif where == "list":
            metadata[self.pick(("ownerReferences", "finalizers"))] = hole
        elif where == "spec":
            spec = obj["spec"]
            assert isinstance(spec, dict)
            spec[self.pick([*spec, "devices", "sharedCounters", "nodeSelector", "x"])] = hole
        else:
            parameters = {"driver": "gpu.example.com", "parameters": {"p": hole}}
            obj["spec"] = {"config": [{"opaque": parameters}]} if kind == "DeviceClass" else hole
        return json.dumps(obj).replace(f'"{hole}"', filling)

    def filling(self, length: int) -> str:
        """A JSON value, more or less."""
        depth = min(length // 2, self.size(20_000))
        pairs = max(length // 16, 1)
        return self.one_of([
            lambda: json.dumps(self.any_text(length // 3)),
            lambda: '"' + "\\ud800" * (length // 6) + '"',
            lambda: '"' + "\\u0000" * (length // 6) + '"',
            lambda: self.digits(length),
            lambda: self.text(length, string.digits) + "." + self.text(length // 2, string.digits),
            lambda: "1e" + self.digits(min(length, 5000)),
            lambda: "[" * depth + "]" * depth,
            lambda: '{"a":' * depth + "1" + "}" * depth,
            lambda: "[" + ",".join(["{}"] * (length // 3)) + "]",
            lambda: "[" + ",".join(["1"] * (length // 2)) + "]",
            lambda: "{" + ",".join(f'"k{at}":"v"' for at in range(pairs)) + "}",
            lambda: "{" + ",".join(['"same":1'] * pairs) + "}",
            lambda: "{" + self.many(length, f'"bad key @!":{json.dumps(self.any_text(3))}') + "}",
            lambda: "{" + json.dumps(self.any_text(length // 3)) + ":1}",
            lambda: "[" + self.many(length, "1@" + self.text(300, string.digits)) + "]",
        ])  # fmt: skip

    def _elements(self, length: int) -> str:
        """Elements of a list in metadata: many, and most of them wrong."""
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": "{}",
            "controller": True,
            "blockOwnerDeletion": True,
        }
        element = self.pick(
            ['""', '"x"', '"a/b/c"', json.dumps(self.text(300)), json.dumps(owner), "{}", "null", '{"controller":true}']
        )
        count = max(length // (len(element) + 1), 1)
        return (
            "["
            + ",".join(element.replace("{}", str(at), 1) if element != "{}" else element for at in range(count))
            + "]"
        )

    def yaml_body(self, family: str) -> Hostile:
        kind, length = self.kind(), self.size(self.most)
        if self.often(0.25):
            return self._send(family, kind, YAML, self.json_text(kind, length))
        obj = self.object(kind)
        head = "".join(f"{name}: {json.dumps(value)}\n" for name, value in obj.items())
        return self._send(family, kind, YAML, head + self.yaml_text(length))

    def yaml_text(self, length: int) -> str:
        depth = min(length // 2, self.size(20_000))
        bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
        )
        return self.one_of([
            lambda: "x: " + "[" * depth + "]" * depth,
            lambda: "x: " + "{a: " * depth + "1" + "}" * depth,
            lambda: "".join(" " * at + "a:\n" for at in range(min(depth, 1500))),
            lambda: "x:\n" + "- " * depth + "1",
            lambda: bomb,
            lambda: "x: &a " + "y" * (length // 2) + "\nz: [" + ",".join(["*a"] * (length // 8)) + "]",
            lambda: "\n".join(f"k{at}: v" for at in range(length // 8)),
            lambda: "same: 1\n" * (length // 8),
            lambda: f"? {self.text(min(length, 5000), string.digits)}\n: 1\n" * self._random.randint(1, 20),
            lambda: "x: !!binary " + self.text(length),
            lambda: "x: !<tag:" + self.text(length) + "> y",
            lambda: "x: |\n" + " \n" * (length // 2),
            lambda: 'x: "' + "\\x41" * (length // 4) + '"',
            lambda: "x: '" + "''" * (length // 2) + "'",
            lambda: "&a " * (length // 3) + "x",
            lambda: "<<: [" + "{a: 1}," * (length // 7) + "]",
            lambda: "---\nx: 1\n" * (length // 9),
            lambda: "x: " + self.digits(length),
            lambda: "x: " + "1:" * (length // 2) + "1",
            lambda: "#" * length,
            lambda: "\t" * length,
            lambda: "x: 0x" + self.text(length, string.hexdigits),
            lambda: "? " * depth,
            lambda: self.any_text(length),
        ])  # fmt: skip

    def protobuf_body(self, family: str) -> Hostile:
        kind = self.kind()
        return self._send(family, kind, PROTOBUF, self.message(kind, self.size(self.most)))

    def message(self, kind: str, length: int) -> bytes:
        """An object in its envelope, with fields that were chosen with malice, or no object at all."""
        name = protobuf.field(1, named(self.number).encode())
        little = self._random.choice(
            (b"", b"\x0a\0", b"\x0a\x01a\x12\0", b"\x08\1", b"\xff" * 10, b"\x0a\xff\xff\xff\xff\x0f")
        )
        field = protobuf.field(self._random.randrange(1, 20), little)
        flood = field * (length // len(field) + 1)
        text = self.any_text(length).encode()
        cases = (
            "metadata",
            "spec",
            "inner",
            "groups",
            "text",
            "parameters",
            "numbers",
            "broken",
            "nested",
            "unknown",
            "managed",
        )
        match self.pick(cases):
            case "metadata":
                message = protobuf.field(1, name + flood)
            case "spec":
                message = protobuf.field(1, name) + protobuf.field(2, flood)
            case "inner":
                message = protobuf.field(1, name) + protobuf.field(
                    2, protobuf.field(self._random.randrange(1, 12), flood)
                )
            case "groups":
                message = protobuf.field(1, name) + b"\x53" * (length // 2) + b"\x54" * (length // 2)
            case "text":
                message = protobuf.field(1, name + protobuf.field(self._random.randrange(1, 18), text))
            case "parameters":
                raw = protobuf.field(1, self.filling(length).encode("utf-8", "surrogatepass"))
                opaque = protobuf.field(1, b"gpu.example.com") + protobuf.field(2, raw)
                config = protobuf.field(1, protobuf.field(1, opaque))
                message = protobuf.field(1, name) + protobuf.field(2, protobuf.field(2, config))
            case "numbers":
                attribute = protobuf.field(1, b"a") + protobuf.field(2, b"\x30\x7f" * (length // 2))
                message = protobuf.field(1, name) + protobuf.field(2, protobuf.field(6, protobuf.field(2, attribute)))
            case "nested":
                numbers = [self._random.randrange(1, 12) for _ in range(min(length // 3, self.size(2000)))]
                message = protobuf.field(1, name) + reduce(
                    lambda inner, outer: protobuf.field(outer, inner), numbers, little
                )
            case "unknown":
                numbers = [self._random.choice((20, 100, 2047, 1 << 20, (1 << 29) - 1, 1 << 29)) for _ in range(4)]
                fields = b"".join(protobuf.field(number, b"x" * self._random.randrange(9)) for number in numbers)
                message = protobuf.field(1, name) + fields * (length // len(fields) + 1)
            case "managed":
                raw = protobuf.field(1, self._field_set(length).encode("utf-8", "surrogatepass"))
                entry = protobuf.field(1, b"m") + protobuf.field(2, b"Update") + protobuf.field(6, b"FieldsV1")
                message = protobuf.field(1, name + protobuf.field(17, entry + protobuf.field(7, raw)))
            case _:
                message = self._random.randbytes(min(length, 1 << 16))
        document = protobuf.document(f"{GROUP}/{self._version}", kind if self.often(0.9) else "Status", message)
        return document if self.often(0.9) else document[: self._random.randrange(len(document))]

    def device_selectors(self, family: str) -> Hostile:
        """Objects whose selectors are expressions: many of them, all others, and each what is hard to read or to judge."""
        kind, length = KINDS[1 + self.number % 3], self.size(self.most)
        one = self.expression(min(length, self.pick_size((10 << 10, 10 << 10, 20 << 10, length))))
        count = max(1, min(length // (len(one) + 24), self.pick_size((1, 32, 33, 1000))))
        text = json.dumps({"cel": {"expression": one}}).replace("@", "%")
        marked = text[:-3] + " // @" + text[-3:] if self.often(0.5) else text
        selectors = "[" + self.many(count * (len(marked) + 4), marked) + "]"
        obj = self.object(kind)
        wanted = f'{{"deviceClassName":"gpu.example.com","selectors":{selectors}}}'
        if self._version == "v1beta1":
            request = f'{{"name":"r@",{wanted[1:]}'
        else:
            request = f'{{"name":"r@","exactly":{wanted}}}'
        if self.often(0.2):
            request = f'{{"name":"r@","firstAvailable":[{{"name":"a",{wanted[1:]}]}}'
        requests = '{"devices":{"requests":[' + self.many(min(length, 40 * len(request)), request) + "]}}"
        specs = {"DeviceClass": f'{{"selectors":{selectors}}}', "ResourceClaim": requests}
        obj["spec"] = "@hole@"
        # A template of the third kind has the claim's in another `spec`.
        spec = specs.get(kind) or f'{{"spec":{requests}}}'
        return self._send(family, kind, JSON, json.dumps(obj).replace('"@hole@"', spec))

    def expression(self, length: int) -> str:
        """In the Common Expression Language, more or less, and of about that many characters."""
        device = 'device.attributes["gpu.example.com"].model'
        right = self.pick((
            f'{device} == "x"', 'device.driver.matches("^(a+)+$")', "device.allowMultipleAllocations == true",
            'device.capacity["gpu.example.com"].memory.compareTo(quantity("1Gi")) > 0', "[1,2,3].exists(x, x > 2)",
            f'semver({device}).isGreaterThan(semver("1.0.0"))', 'cel.bind(a, "x", a + a) == "xx"', "has(device.driver)",
            '"%s".format([device.driver]) == ""', "device.attributes.all(k, k.size() > 0)",
        ))  # fmt: skip
        piece = self.pick((
            "(", "[", "{1:", "a(", "a[", "a.", "true ? true : ", "!", "-", "1+", "a||", "'", "\\", ")", "//", "a.?b", "\"\\u0041", "has(",
            "[1,2].all(x, ", "[1,2].map(x, ", "cel.bind(a, [1,2], ", 'device.attributes["a"].', "1 in [", "r'", "b'", "\U0001f600",
        ))  # fmt: skip
        many = (length // len(right)) + 1
        nested = min(length // 14, self.size(600))
        pattern = self.pick(
            ("(", "(a+)+", "[a-z]{1000}", "(a{1000}){1000}", "a?", "(?i:", "\\\\p{L}", "|", ".*", "\\U0010ffff")
        )
        return self.one_of([
            lambda: (piece * (length // len(piece) + 1))[:length],
            lambda: (piece * (length // len(piece) + 1))[:length] + "true",
            lambda: f" {self.pick(('&&', '||', '==', '+'))} ".join([right] * many)[:length],
            lambda: " && ".join([right] * max(1, many - 1)),
            lambda: "[1,2].all(x, " * nested + right + ")" * nested,
            lambda: "(" * nested + right + ")" * nested,
            lambda: "cel.bind(v0, [1], "
            + "".join(f"cel.bind(v{at}, [v{at - 1},v{at - 1}], " for at in range(1, nested))
            + (right + ")" * max(1, nested)),
            lambda: "[" * nested + "]" * nested + " == []",
            lambda: "device.driver.matches('" + (pattern * (length // len(pattern)))[: max(1, length - 30)] + "')",
            lambda: "[" + "1," * (length // 2) + "1].map(x, [1,2,3].map(y, x * y)).size() > 0",
            lambda: '"' + self.text(length) + '".contains(device.driver)',
            lambda: f"quantity('{self.digits(length)}').isInteger()",
            lambda: f"semver('{self.digits(length)}.0.0').major() == 1",
            lambda: self.digits(length) + " == 1",
            lambda: self.any_text(length),
            lambda: "device" + ".a" * (length // 2),
            lambda: "true ? " * nested + "true" + " : false" * nested,
        ])  # fmt: skip

    def pick_size(self, of: Sequence[int]) -> int:
        return self._random.choice(of)

    def raw(self, family: str) -> Hostile:
        """Objects with what the server does not look into: parameters of drivers in specs and in status, and data of devices."""
        kind, length = KINDS[1 + self.number % 3], self.size(self.most)
        driver = {"driver": "gpu.example.com"}
        opaque = {"opaque": driver | {"parameters": "@hole@"}}
        config = [opaque] * self.pick_size((1, 1, 2, 32, 40))
        filling = self.filling(length // len(config))
        if self.often(0.7):
            filling = '{"p":' + filling + "}"
        if self.often(0.2):
            filling = self.pick((" ", "\n", "\t")) * (length // len(config)) + "{}"
        obj = self.object(kind)
        if kind == "ResourceClaim" and self.often(0.5):
            obj["metadata"] = {"name": STANDING, "namespace": "hostile"}
            device = driver | {"pool": "p", "device": "d@", "data": "@hole@"}
            status: dict[str, object] = {"devices": [device] * self.pick_size((1, 2, 32))}
            if self.often(0.4):
                result = {
                    "devices": {"results": [driver | {"request": "main", "pool": "p", "device": "d"}], "config": config}
                }
                status |= {"allocation": result}
            if self.often(0.3):
                status |= {
                    "reservedFor": [
                        {"resource": "pods", "name": f"p{at}", "uid": f"u{at}"} for at in range(self.size(20_000))
                    ]
                }
            text = json.dumps(obj | {"status": status}).replace(
                '"@hole@"', filling[: length // 3] if self.often(0.1) else filling
            )
            headers = [("Content-Type", JSON), ("Accept", self.pick(ACCEPTS))]
            path = self.item(kind) + "/status"
            body = text.encode("utf-8", "surrogatepass")
            return self.request(family, method="PUT", path=path, headers=headers, body=body, anonymous=False)
        spec = obj["spec"]
        assert isinstance(spec, dict)
        match kind:
            case "DeviceClass":
                spec["config"] = config
            case "ResourceClaim":
                spec["devices"]["config"] = config
            case _:
                spec["spec"]["devices"]["config"] = config
        return self._send(family, kind, JSON, json.dumps(obj).replace('"@hole@"', filling))

    def patch(self, family: str) -> Hostile:
        kind, length = self.kind(), self.size(self.most)
        media = self.pick(PATCHES)
        text = self.operations(length) if media == PATCHES[0] and self.often(0.8) else self._merging(kind, length)
        query = self.pick(("", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldManager=m&force=true"))
        raw = text.encode("utf-8", "surrogatepass")
        return self.request(
            family,
            method="PATCH",
            path=self.item(kind) + query,
            headers=[("Content-Type", media)],
            body=raw,
            anonymous=False,
        )

    def operations(self, length: int) -> str:
        operations = (
            {"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/x"},
            {"op": "add", "path": "/spec/config/-", "value": {}},
            {"op": "copy", "from": "/spec", "path": "/metadata/annotations"},
            {"op": "copy", "from": "/metadata", "path": "/x"},
            {"op": "move", "from": "/spec", "path": "/x"},
            {"op": "test", "path": "/spec", "value": self.text(min(length, 50))},
            {"op": "test", "path": "", "value": {}},
            {"op": "remove", "path": "/" + "a/" * min(length // 2, 3000)},
            {"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}},
            {"op": "add", "path": "/metadata/annotations/~1~0" + self.text(20), "value": "v"},
            {"op": "add", "path": "/metadata/finalizers/" + "9" * min(length, 5000), "value": "v"},
        )
        chosen = [json.dumps(self._random.choice(operations)) for _ in range(self._random.randint(1, 4))]
        first = '{"op":"add","path":"/metadata/finalizers","value":[' + ",".join(['"a/b"'] * (length // 12)) + "]}"
        return "[" + ",".join([first, *(chosen * max(1, min(length // 2 // sum(map(len, chosen)), 12_000)))]) + "]"

    def _merging(self, kind: str, length: int) -> str:
        depth = min(length // 8, self.size(20_000))
        return self.one_of([
            lambda: '{"spec":' * depth + "null" + "}" * depth,
            lambda: '{"metadata":{"annotations":' + self.filling(length) + "}}",
            lambda: '{"metadata":{"labels":' + self.filling(length) + "}}",
            lambda: '{"metadata":{"labels":{' + self.many(length, '"k@":null') + "}}}",
            lambda: '{"metadata":{"finalizers":' + self._elements(length) + "}}",
            lambda: '{"spec":{"config":[{"opaque":{"driver":"gpu.example.com","parameters":{"p":' + self.filling(length) + "}}}]}}",
            lambda: self.filling(length),
            lambda: self.json_text(kind, length),
        ])  # fmt: skip

    def strategic(self, family: str) -> Hostile:
        """A strategic merge patch of lists that are merged by keys, and of directives."""
        kind, length = self.kind(), self.size(self.most)
        body = '{"metadata":' + self._directives(length) + "}" if self.often(0.8) else self._directives(length)
        return self._patched(family, kind, PATCHES[2], body)

    def _directives(self, length: int) -> str:
        """Directives for the metadata of an object, which merges owners by their uid."""
        filling = partial(self.filling, length)
        return self.one_of([
            lambda: self._owners(length, ""),
            lambda: self._owners(length, ',"$patch":"delete"'),
            lambda: '{"$setElementOrder/ownerReferences":[' + self.many(length, '{"uid":"u@"}') + "]}",
            lambda: '{"$setElementOrder/ownerReferences":[],"ownerReferences":[' + self.many(length, '{"uid":"u@"}') + "]}",
            lambda: '{"$setElementOrder/finalizers":[' + self.many(length // 2, '"a/@"') + '],"finalizers":['
            + self.many(length // 2, '"a/@"') + "]}",
            lambda: '{"$setElementOrder/finalizers":[],"finalizers":[' + self.many(length, '"a/@"') + "]}",
            lambda: '{"$deleteFromPrimitiveList/finalizers":[' + self.many(length, '"a/@"') + "]}",
            lambda: '{"$retainKeys":[' + self.many(length, '"k@"') + "]}",
            lambda: '{"$retainKeys":' + filling() + "}",
            lambda: '{"$patch":' + filling() + "}",
            lambda: '{"$setElementOrder/finalizers":' + filling() + ',"finalizers":' + filling()[: length // 2] + "}",
            lambda: '{"ownerReferences":[{"uid":' + filling() + '},{"uid":"u1"}]}',
            lambda: '{"ownerReferences":[{"x":' + filling() + "}]}",
            lambda: '{"ownerReferences":[' + self.many(length, "null") + "]}",
            lambda: '{"labels":{"$patch":"replace","a":' + filling() + "}}",
            lambda: '{"creationTimestamp":' + filling() + "}",
            lambda: '{"managedFields":' + filling() + "}",
            lambda: "{" + self.many(length, '"$setElementOrder/f@":[]') + "}",
            lambda: "{" + self.many(length, '"$deleteFromPrimitiveList/f@":[1]') + "}",
        ])  # fmt: skip

    def _owners(self, length: int, more: str) -> str:
        element = '{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u@"' + more + "}"
        return '{"ownerReferences":[' + self.many(length, element) + "]}"

    def many(self, length: int, element: str) -> str:
        """Elements that differ, of that many characters in all."""
        count = min(max(length // (len(element) + 4), 1), 40_000)
        start = self._random.randrange(10)
        return ",".join(element.replace("@", str(at), 1) for at in range(start, start + count))

    def apply(self, family: str) -> Hostile:
        """An applied configuration, as JSON or as YAML."""
        kind, length = self.kind(), self.size(self.most)
        obj = self.object(kind)
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        metadata["name"] = STANDING
        hole = "@hole@"
        many = {
            "finalizers": lambda: "[" + self.many(length, '"example.com/f@"') + "]",
            "ownerReferences": lambda: self._owners(length, "").partition(":")[2][:-1],
            "labels": lambda: "{" + self.many(length, '"example.com/k@":"v"') + "}",
            "annotations": lambda: "{" + self.many(length, '"example.com/k@":"v"') + "}",
        }
        chosen = self.pick([*many, *METADATA])
        metadata[chosen] = hole
        filling = many[chosen]() if chosen in many and self.often(0.7) else self.filling(length)
        text = json.dumps(obj).replace(f'"{hole}"', filling)
        if self.often(0.2):
            text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in self.object(kind).items())
            text += self.yaml_text(length)
        return self._patched(family, kind, PATCHES[3], text, f"fieldManager=m{self._random.randrange(3)}&force=true")

    def managed_fields(self, family: str) -> Hostile:
        """Values of managedFields: of unknown managers, malformed sets, and endless ones."""
        kind, length = self.kind(), self.size(self.most)
        entry = {
            "manager": "m",
            "operation": "Update",
            "apiVersion": f"{GROUP}/{self._version}",
            "fieldsType": "FieldsV1",
        }
        shown = json.dumps(entry | {"time": "2026-01-01T00:00:00Z", "fieldsV1": "@set@"})
        one = shown.replace('"@set@"', self._field_set(length))
        many = shown.replace('"m"', '"m@"', 1).replace('"@set@"', '{"f:spec":{}}')
        entries = self.one_of(
            [lambda: one, lambda: self.many(length, many), lambda: one + "," + one[: length // 2]],
        )
        body = '{"metadata":{"managedFields":[' + entries + "]}}"
        return self._patched(family, kind, self.pick(PATCHES[1:3]), body)

    def _field_set(self, length: int) -> str:
        depth = min(length // 10, self.size(20_000))
        return self.one_of([
            lambda: self.filling(length),
            lambda: '{"f:spec":' * depth + "{}" + "}" * depth,
            lambda: "{" + self.many(length, '"f:k@":{}') + "}",
            lambda: '{"f:metadata":{"f:labels":{' + self.many(length, '"f:k@":{}') + "}}}",
            lambda: '{"f:metadata":{"f:ownerReferences":{' + self.many(length, r'"k:{\"uid\":\"u@\"}":{".":{},"f:name":{}}') + "}}}",
            lambda: '{"f:metadata":{"f:finalizers":{' + self.many(length, r'"v:\"a/@\"":{}') + "}}}",
            lambda: "{" + json.dumps("v:" + self.filling(length // 2)) + ":{}}",
            lambda: "{" + json.dumps("k:{" + self.many(length // 2, '"k@":1') + "}") + ":{}}",
            lambda: "{" + json.dumps("i:" + self.digits(length)) + ":{}}",
            lambda: "{" + json.dumps(self.any_text(length // 2)) + ":{}}",
            lambda: "{" + self.many(length, '"x:k@":{}') + "}",
        ])  # fmt: skip

    def _patched(self, family: str, kind: str, media: str, body: str, query: str = "") -> Hostile:
        chosen = self.pick(("", "", "dryRun=All", "fieldValidation=Strict", "fieldValidation=Ignore"))
        asked = "&".join(part for part in (query, chosen) if part)
        return self.request(
            family,
            method="PATCH",
            path=self.item(kind) + (f"?{asked}" if asked else ""),
            headers=[("Content-Type", media)],
            body=body.encode("utf-8", "surrogatepass"),
            anonymous=False,
        )

    def delete_options(self, family: str) -> Hostile:
        options = (
            '{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"x"},"x":'
            + self.filling(self.size(self.most))
            + "}"
        )
        body = (options if self.often(0.7) else self.filling(self.size(self.most))).encode("utf-8", "surrogatepass")
        media = self.pick((JSON, YAML, PROTOBUF, ""))
        if media == PROTOBUF:
            body = protobuf.document(
                "v1", "DeleteOptions", protobuf.field(self._random.randrange(1, 8), b"x") * (len(body) // 3)
            )
        headers = [("Content-Type", media)] if media else []
        path = f"{self.collection()}/{self.text(8)}"
        return self.request(
            family,
            method="DELETE",
            path=path,
            headers=headers,
            body=body,
            anonymous=False,
        )

    def reading(self, family: str) -> Hostile:
        """Stored objects, in each form."""
        kind = self.kind()
        path = self.pick(
            [
                self.collection(kind),
                self.item(kind),
                self.collection(kind) + "?limit=3",
                self.collection(kind) + "?watch=1&timeoutSeconds=1",
            ]
        )
        headers = [("Accept", self.pick(ACCEPTS))]
        if self.often(0.4):
            headers.append(("Accept-Encoding", "gzip"))
        if self.often(0.3):
            path += ("&" if "?" in path else "?") + self.pick(
                ("pretty=1", "includeObject=Object", "includeObject=None")
            )
        return self.request(family, path=path, headers=headers, anonymous=False)

    def afterwards(self, family: str) -> Hostile:
        """Later requests for an object that came in one of the last requests, if it was stored at all."""
        kind, name = self._drawn_before()
        path = self.item(kind, name)
        form = [("Accept", self.pick(ACCEPTS))]
        method = self.pick(("GET", "GET", "GET", "PATCH", "PATCH", "PUT", "DELETE", "DELETE", "WATCH"))
        match method:
            case "GET":
                return self.request(family, path=path, headers=form, anonymous=False)
            case "WATCH":
                path = f"{self.collection(kind)}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3D{name}"
                return self.request(family, path=path + INITIAL, headers=form, anonymous=False)
            case "DELETE":
                return self.request(family, method=method, path=path, headers=form, anonymous=False)
            case "PUT":
                text, media = self.json_text(kind, self.size(self.most)), JSON
            case _:
                media = self.pick(PATCHES)
                length = self.size(self.most)
                text = self.operations(length) if media == PATCHES[0] else self._merging(kind, length)
        headers = [("Content-Type", media), *form]
        body = text.encode("utf-8", "surrogatepass")
        return self.request(family, method=method, path=path, headers=headers, body=body, anonymous=False)

    def _drawn_before(self) -> tuple[str, str]:
        """Kind and name of an object that one of the last requests may have stored."""
        last = range(max(0, self.number - LOOK_BACK), self.number)
        creating = [number for number in last if self._family(number) in CREATING]
        if not creating:
            return self.kind(), STANDING
        self._follows = self._random.choice(creating)
        return KINDS[self._follows % len(KINDS)], named(self._follows)

    # Around requests

    def media(self, family: str) -> Hostile:
        """Bodies and answers in forms that are not served, or not in that way."""
        kind, length = self.kind(), self.size(self.most)
        text = self.json_text(kind, length).encode("utf-8", "surrogatepass")
        content = self.pick((
            "application/vnd.kubernetes.protobuf", "application/cbor", "application/vnd.kubernetes.protobuf;stream=watch", "text/plain",
            "application/json;charset=utf-16", "application/json;stream=watch", "multipart/form-data;boundary=" + "b" * 70, "*/*", "", "/",
        ))  # fmt: skip
        ways: Sequence[Callable[[], bytes]] = (
            lambda: b"k8s\x00" + text,
            lambda: b"k8s\x00\x0a\xff\xff\xff\xff\x0f" + text[:100],
            lambda: gzip.compress(text, 1, mtime=0),
            lambda: text,
        )
        body = self._random.choice(ways)()
        encoding = (
            [("Content-Encoding", self.pick(("gzip", "deflate", "br", "gzip, gzip", "identity")))]
            if self.often(0.6)
            else []
        )
        accept = self.pick((
            "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json", "application/cbor",
            "application/json;stream=watch", "application/json;as=Table;v=v9;g=meta.k8s.io",
            "application/json;as=APIGroupDiscoveryList;v=v2",
        ))  # fmt: skip
        method = self.pick(("POST", "PUT", "PATCH", "DELETE"))
        return self.request(
            family,
            method=method,
            path=self.collection(kind)
            if method == "POST"
            else self.item(kind) + ("-not" if method == "DELETE" else ""),
            headers=[("Content-Type", content), ("Accept", accept), *encoding],
            body=body,
        )

    def framing(self, family: str) -> Hostile:
        """Bodies whose framing is broken, ambiguous, or never ends."""
        kind = self.kind()
        text = self.json_text(kind, self.size(100_000)).encode("utf-8", "surrogatepass")
        size = f"{len(text):x}".encode()
        chunks = self._random.choice((
            size + b"\r\n" + text + b"\r\n0\r\n\r\n",
            size + b"\r\n" + text + b"\r\n",
            b"".join(b"1\r\n%c\r\n" % byte for byte in text[:20_000]) + b"0\r\n\r\n",
            size + b";" + b"x=y;" * self.size(20_000) + b"\r\n" + text + b"\r\n0\r\n\r\n",
            size + b"\r\n" + text + b"\r\n0\r\n" + b"X-Trailer: y\r\n" * self.size(5_000) + b"\r\n",
            b"f" * self.size(5_000) + b"\r\n" + text,
            b"-1\r\n" + text,
            b"0x5\r\nhello\r\n0\r\n\r\n",
            size + b"\n" + text + b"\n0\n\n",
            b"\r\n" * self.size(50_000),
            text,
        ))  # fmt: skip
        framing = self.pick((
            "Transfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5", "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked, chunked", "Transfer-Encoding:\tchunked", f"Content-Length: {len(chunks) + 1}",
            "Content-Length: 0", f"Content-Length: {BODY + 1}", "Content-Length: 5\r\nContent-Length: 6", "Transfer-Encoding: xchunked",
            "Expect: 100-continue\r\nTransfer-Encoding: chunked",
        ))  # fmt: skip
        head = f"POST {self.collection(kind)} HTTP/1.1\r\nHost: server\r\nContent-Type: {JSON}\r\n{framing}\r\n\r\n"
        return Hostile(family, head.encode(), chunks, self.often(0.3), leaves=True)

    def pipelined(self, family: str) -> Hostile:
        """Many requests at once, before the first answer is read."""
        count = self.size(1000)
        path = self.pick([self.collection(), "/livez", "/nothing", "/apis", self.item("DeviceClass"), "/openapi/v3"])
        one = self.request(family, path=path, method=self.pick(("GET", "HEAD", "OPTIONS")))
        return replace(one, head=one.head * count, answers=count)

    def slow_reader(self, family: str) -> Hostile:
        """Long answers that are read slowly and left."""
        path = self.pick(
            ["/openapi/v2", "/metrics", "/openapi/v3/apis/resource.sluice.dev/v1", *map(self.collection, KINDS)]
        )
        if path.startswith("/apis") and self.often(0.3):
            path += "?watch=1" + INITIAL
        form = [("Accept", self.pick(ACCEPTS))] if path.startswith("/apis") else []
        count = self._random.randint(1, 20)
        one = self.request(family, path=path, headers=form, anonymous=False)
        return replace(one, head=one.head * count, slowly=True)

    def refusal(self, family: str) -> Hostile:
        """Requests that are refused, and would cost much if they were read first: very many values, and long selectors that end wrong or
        that nobody may send."""
        if self.often(0.5):
            length = HEADERS - 8192
            term = self.pick(("k@=v", "k@", "!k@", "example.com/k@=v", "k@ in (a,b)", "k@ notin ()", "k@>7")).replace(
                " ", "+"
            )
            text = self.many(self.size(length, least=length // 8), term)[: length - 100].rpartition(",")[0]
            reason = self.pick(("anonymous", "selector", "path", "method", "accept"))
            wrong = self.pick((",=", ",-x", ",a=-", ",a+in+(b")) if reason == "selector" else ""
            place = "/nothing" if reason == "path" else ""
            return self.request(
                family,
                method=self.pick(("PUT", "INVENT")) if reason == "method" else "GET",
                path=f"{self.collection()}{place}?labelSelector={text}{wrong}",
                headers=[("Accept", self.pick(("text/html", "application/json;as=X;v=v1;g=x")))] * (reason == "accept"),
                anonymous=reason == "anonymous",
            )
        kind, length = self.kind(), self.size(self.most, least=self.most // 8)
        count = max(length // 12, 1)
        match self.pick(("json", "yaml", "block", "wrong yaml", "protobuf")):
            case "json":
                value = self.pick(('"k@":"v"', '"\\"@":1', '"@":{}')).replace("{}", "[]")
                many = ",".join(value.replace("@", str(at)) for at in range(count))
                text = json.dumps({**self.object(kind), "x": "@hole@"}).replace('"@hole@"', "{" + many + "}")
                return self._send(family, kind, JSON, text)
            case "yaml":
                return self._send(family, kind, YAML, "x: [" + "a," * (length // 2) + "a]")
            case "wrong yaml":
                wrong = self.pick(("}", "", '"', "*nothing]"))
                return self._send(family, kind, YAML, "x: [" + "a," * (length // 2) + wrong)
            case "protobuf":
                return self._message_of_many(family, kind, length)
            case _:
                return self._send(family, kind, YAML, "".join(f"k{at}: v\n" for at in range(count)))

    def _message_of_many(self, family: str, kind: str, length: int) -> Hostile:
        """A message of very many fields: unknown ones, groups, entries, values that later ones replace."""
        field = protobuf.field
        unknown = self._random.choice((b"\xa0\x06\x01", field(99, b""), b"\x53", b"\x53\x54"))
        entry = field(11, field(1, b"example.com/key") + field(2, b"value"))
        member = self._random.choice((entry, field(14, b"\xff"), field(1, b"zz"), field(6, b"")))
        metadata = field(1, field(1, b"zz") + member * (length // len(member)))
        message = self._random.choice((metadata, unknown * (length // len(unknown))))
        return self._send(family, kind, PROTOBUF, protobuf.document(f"{GROUP}/v1", kind, message))

    def websocket(self, family: str) -> Hostile:
        """Watches over WebSockets: broken handshakes, and frames in such numbers and lengths as no client sends."""
        mask = bytes(self._random.randrange(256) for _ in range(4))
        count = self.size(BODY // 8)
        sent = self._random.choice((
            b"\x89\x80" + mask,
            b"\x89\xfd" + mask + b"p" * 125,
            b"\x81\x80" + mask,
            b"\x00\x81" + mask + b"x",
            b"\x89\xff" + self.size(1 << 40).to_bytes(8, "big") + mask + b"x" * 1000,
            b"\x82\xfe\x00\x80" + mask + b"x" * 128,
            bytes(self._random.randrange(256) for _ in range(64)),
            b"\x88\x82" + mask + b"xx",
            b"GET /livez HTTP/1.1\r\nHost: s\r\n\r\n",
        ))  # fmt: skip
        headers = [
            ("Upgrade", self.pick(("websocket", "websocket", "websocket", "WebSocket", "h2c"))),
            ("Connection", self.pick(("Upgrade", "Upgrade", "keep-alive, Upgrade", "close"))),
            ("Sec-WebSocket-Version", self.pick(("13", "13", "13", "8"))),
            ("Sec-WebSocket-Key", self.pick(("dGhlIHNhbXBsZSBub25jZQ==", self.text(self.size(HEADERS // 4))))),
            ("Origin", self.pick(("https://x", "https://x", "https://" + "%20" * (self.size(HEADERS // 4) // 3)))),
        ]
        if self.often(0.3):
            token = self.text(self.size(HEADERS // 8), string.ascii_letters)
            offered = self.pick(
                ("base64.binary.k8s.io", f"base64url.bearer.authorization.k8s.io.{token}, x", "a," * len(token))
            )
            headers.append(("Sec-WebSocket-Protocol", offered))
        headers.append(("Accept", self.pick(ACCEPTS)))
        path = self.collection() + "?watch=1&timeoutSeconds=1" + (INITIAL if self.often(0.5) else "")
        one = self.request(family, path=path, headers=headers)
        return replace(one, body=(sent * (count // len(sent) + 1))[:BODY], slowly=True)

    def token(self, family: str) -> Hostile:
        """Bearer tokens, most of them none."""
        length = self.size(HEADERS - 4096)
        part = self.pick((
            base64.urlsafe_b64encode(b'{"alg":"none"}').decode(),
            self.text(length // 3, string.ascii_letters + string.digits),
            base64.urlsafe_b64encode(("[" * (length // 5)).encode()).decode(),
            "é" * (length // 3),
            "." * (length // 3),
        ))  # fmt: skip
        value = self.pick(("Bearer ", "bearer ", "BEARER\t", "Bearer  ")) + self.pick(
            (part, f"{part}.{part}.{part[:50]}", part + " x")
        )
        path = self.pick([self.collection(), "/apis", "/livez", "/metrics"])
        return self.request(family, path=path, headers=[("Authorization", value[: HEADERS // 2])])

    # Below HTTP.

    def handshake(self, family: str) -> Hostile:
        """One attack after the other, so that a few of the family are all different."""
        kinds = tuple(handshakes.ATTACKS)
        amount, size = self.size(handshakes.MOST_RECORDS), self.size(handshakes.MOST_BYTES)
        head = f"HANDSHAKE {kinds[self.number % len(kinds)]} {amount} {size}\r\n\r\n"
        return Hostile(family, head.encode(), anonymous=True)


FAMILIES: dict[str, Callable[[Generator, str], Hostile]] = {
    "accept": Generator.accept,
    "long header": Generator.long_header,
    "many headers": Generator.many_headers,
    "protocol": Generator.protocol,
    "path": Generator.path,
    "selector": Generator.selector,
    "shard": Generator.shard,
    "query": Generator.query,
    "json": Generator.json_body,
    "yaml": Generator.yaml_body,
    "protobuf": Generator.protobuf_body,
    "selectors of devices": Generator.device_selectors,
    "raw": Generator.raw,
    "patch": Generator.patch,
    "strategic": Generator.strategic,
    "apply": Generator.apply,
    "managed fields": Generator.managed_fields,
    "delete options": Generator.delete_options,
    "reading": Generator.reading,
    "afterwards": Generator.afterwards,
    "media": Generator.media,
    "framing": Generator.framing,
    "pipelined": Generator.pipelined,
    "slow reader": Generator.slow_reader,
    "websocket": Generator.websocket,
    "token": Generator.token,
    handshakes.FAMILY: Generator.handshake,
    REFUSALS: Generator.refusal,
    **custom.FAMILIES,
}
CREATING = ("json", "yaml", "protobuf", "selectors of devices", "raw")
"""Families of which some store an object of their own."""
LOOK_BACK = 64
HEADS = ("accept", "long header", "many headers", "path", "protocol", "query", "selector", "token")
"""Families that are all request line and headers. Without a certificate they write nothing."""
