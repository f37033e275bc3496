"""Input that no well-meaning client sends: upstream's answer, and the server lives on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures import certificates
from tests.fixtures.server import DevServer, Reply
from tests.hostile.campaign import Process

GROUP = "resource.sluice.dev"
V1 = f"/apis/{GROUP}/v1"
CLASSES = f"{V1}/deviceclasses"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def no_unhandled_error_is_logged(dev: DevServer) -> Any:
    """Every test of this file also promises that the server's log shows no stack trace."""
    before = dev.log.stat().st_size
    yield
    with dev.log.open("rb") as log:
        log.seek(before)
        assert b"Traceback" not in log.read()


def status(reply: Reply) -> tuple[int, str, str]:
    body = reply.json
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    return reply.status, body.get("reason", ""), body["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ("", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ("[]", "json: cannot unmarshal array into Go value of type"),
        ('{"metadata":{"name":5}}', "json: cannot unmarshal number into Go struct field"),
        ('{"kind":"Foo"}', 'no kind "Foo" is registered for version'),
    ],
)
def test_a_body_that_is_no_object_of_the_kind_is_400_in_upstreams_words(
    dev: DevServer, body: str, message: str
) -> None:
    reply = dev.request("POST", CLASSES, body, headers=JSON)

    code, reason, text = status(reply)
    assert (code, reason) == (400, "BadRequest")
    assert message in text


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_ten_thousand_levels_of_nesting_are_400_and_not_a_crash(dev: DevServer, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    deep = f'{{"metadata":{{"name":"deep"}},"x":{opening * 10_001}1{closing * 10_001}}}'

    code, _, text = status(dev.request("POST", CLASSES, deep, headers=JSON))

    assert code == 400
    assert "exceeded max depth" in text


def test_a_yaml_bomb_is_refused_quickly(dev: DevServer) -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]" for p, c in zip("abcdefgh", "bcdefghi", strict=True)]

    reply = dev.request("POST", CLASSES, "\n".join(lines), headers={"Content-Type": "application/yaml"})

    assert status(reply)[0] == 400


def test_a_body_above_three_mebibytes_is_413(dev: DevServer) -> None:
    body = json.dumps({"metadata": {"name": "big", "annotations": {"x": "y" * 4_000_000}}})

    reply = dev.request("POST", CLASSES, body, headers=JSON)

    assert status(reply) == (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{V1}/../v1/deviceclasses", 404),
        (f"{CLASSES}/..%2fx", 404),
        (f"{CLASSES}/a%2Fb", 404),
        (f"{CLASSES}/%2E%2E", 400),
        (f"{V1}/./deviceclasses", 404),
        (f"{V1}//deviceclasses", 404),
        (f"{V1}/watch", 500),
        (f"{CLASSES}/%ff", 404),
    ],
)
def test_odd_paths_are_judged_as_sent_and_never_normalised(dev: DevServer, path: str, code: int) -> None:
    assert dev.request("GET", path).status == code


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=x", 400),
        ("labelSelector=((", 400),
        ("fieldSelector=spec.nope%3Dx", 400),
        ("fieldSelector=a%3D%5Cb", 400),
        ("resourceVersion=abc", 400),
        ("resourceVersionMatch=Exact", 422),
        ("continue=abc", 400),
        (
            "continue="
            + base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":1,"start":"/../x"}').decode().rstrip("="),
            400,
        ),
        (
            "continue=" + base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":1,"start":"/x"}').decode().rstrip("="),
            410,
        ),
        ("timeout=soon", 400),
        ("nonsense=1", 200),
    ],
)
def test_bad_options_are_refused_and_unknown_ones_ignored(dev: DevServer, query: str, code: int) -> None:
    assert dev.request("GET", f"{CLASSES}?{query}").status == code


def test_a_forged_continue_token_never_leaves_the_scope_of_its_request(dev: DevServer) -> None:
    for namespace in ("alpha", "beta"):
        body = {"metadata": {"name": "one"}, "spec": {}}
        assert dev.request("POST", f"{V1}/namespaces/{namespace}/resourceclaims", body).status == 201
    now = dev.request("GET", f"{V1}/resourceclaims").json["metadata"]["resourceVersion"]
    token = {"v": "meta.k8s.io/v1", "rv": int(now), "start": "/beta/"[:-1]}
    forged = base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")

    listed = dev.request("GET", f"{V1}/namespaces/alpha/resourceclaims?continue={forged}").json

    assert [i["metadata"]["namespace"] for i in listed["items"]] in ([], ["alpha"])


@pytest.mark.parametrize("certificate", [True, False])
def test_identity_headers_need_a_front_proxy_certificate(dev: DevServer, certificate: bool) -> None:
    spoofed = {"X-Remote-User": "mallory", "x-remote-group": "system:masters"}
    context = dev.context(certificate=certificate)

    reply = dev.request("GET", f"{CLASSES}/none", headers=spoofed, context=context)

    if certificate:
        assert reply.status == 404
    else:
        assert status(reply)[2].startswith(
            f'deviceclasses.{GROUP} "none" is forbidden: User "system:anonymous" cannot get'
        )


def test_certificate_of_an_unknown_authority_gets_401(dev: DevServer) -> None:
    context = dev.context(certificate=False)
    certificates.load_self_signed(context, "system:masters")

    assert status(dev.request("GET", CLASSES, context=context)) == (401, "Unauthorized", "Unauthorized")


def test_upgrade_is_400_and_closes_before_a_smuggled_request(dev: DevServer) -> None:
    async def smuggle() -> bytes:
        reader, writer = await dev.open()
        upgrade = f"GET {CLASSES} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        second = f"GET {CLASSES} HTTP/1.1\r\nHost: x\r\n\r\n"
        writer.write((upgrade + second).encode())
        answer = await asyncio.wait_for(reader.read(), 100)
        writer.close()
        return answer

    answer = asyncio.run(smuggle())

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.") == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
    ],
)
def test_bytes_that_are_not_http_get_400_and_close_the_connection(dev: DevServer, raw: bytes) -> None:
    async def send() -> bytes:
        reader, writer = await dev.open()
        writer.write(raw)
        answer = await asyncio.wait_for(reader.read(), 100)
        writer.close()
        return answer

    first = asyncio.run(send()).split(b"\r\n")[0]

    assert first.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))


def test_a_user_in_thousands_of_groups_is_served(dev: DevServer) -> None:
    async def send() -> bytes:
        reader, writer = await dev.open()
        groups = "".join(f"X-Remote-Group: group-{i:05}\r\n" for i in range(3000))
        writer.write(f"GET /readyz HTTP/1.1\r\nHost: x\r\n{groups}Connection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 100)
        writer.close()
        return answer

    assert asyncio.run(send()).startswith(b"HTTP/1.1 200")


def test_head_and_invented_methods_are_405(dev: DevServer) -> None:
    assert dev.request("HEAD", CLASSES).status == 405
    assert dev.request("OPTIONS", CLASSES).status == 405


# ---------------------------------------------------------------------------------------------------------------- before the body

MOST = 1000 << 10
"""Characters of request line and headers that are certainly taken."""
SLICES = f"{V1}/resourceslices"
CLAIMS = f"{V1}/namespaces/default/resourceclaims"
UNKNOWN_NODE = "spec.nodeName%3D%3Da,"


def filled(piece: str, size: int = MOST) -> str:
    """The piece over and over; `{n}` in it counts."""
    length = len(piece.replace("{n}", "10000"))
    return "".join(piece.replace("{n}", str(n)) for n in range(size // length))


HEADS: dict[str, Callable[[], tuple[str, dict[str, str], int]]] = {
    # target, headers, the administrator's answer
    "Accept: stars, then others": lambda: (
        SLICES,
        {"Accept": filled("*,", MOST // 2) + filled("a/b,", MOST // 2)},
        406,
    ),
    "Accept: a rising quality": lambda: (SLICES, {"Accept": filled("application/json;q=0.{n},")}, 200),
    "Accept: parameters": lambda: (SLICES, {"Accept": "application/json;" + filled("a{n}=b;")}, 406),
    "Accept on discovery": lambda: ("/apis", {"Accept": filled("a/b,") + "application/json"}, 406),
    "Accept on OpenAPI": lambda: ("/openapi/v2", {"Accept": filled("a/b,")}, 406),
    "Accept-Encoding": lambda: (SLICES, {"Accept-Encoding": filled("a,") + "gzip"}, 200),
    "If-None-Match": lambda: ("/openapi/v2", {"If-None-Match": filled('"x",')}, 200),
    "If-Modified-Since": lambda: ("/openapi/v2", {"If-Modified-Since": "Mon, 02 Jan 2006 15:04:05 " + "(" * MOST}, 200),
    "Authorization": lambda: (SLICES, {"Authorization": "Bearer " + "x" * MOST}, 200),
    "User-Agent": lambda: (SLICES, {"User-Agent": "curl" + "\\" * MOST}, 200),
    "Audit-ID": lambda: (SLICES, {"Audit-ID": "x" * (60 << 10)}, 200),
    "cookies": lambda: (SLICES, {"Cookie": filled("a{n}=b;")}, 200),
    "impersonation": lambda: (SLICES, {f"Impersonate-Extra-{n}": "x" for n in range(3000)}, 400),
    "timeout: zeros": lambda: (f"{SLICES}?timeout=" + filled("0s"), {}, 400),
    "timeout: digits": lambda: (f"{SLICES}?timeout=" + "9" * MOST, {}, 400),
    "parameters": lambda: (f"{SLICES}?" + filled("a{n}=%41&", 80 << 10), {}, 200),
    "parameters with escaped names": lambda: (f"{SLICES}?" + filled("%41" * 33 + "&", 960 << 10), {}, 200),
    "too many parameters": lambda: (f"{SLICES}?" + filled("a{n}=b&"), {}, 200),
    "a repeated parameter": lambda: (f"{SLICES}?" + filled("watch=0&", 70 << 10), {}, 200),
    "escapes": lambda: (f"{SLICES}?a=" + filled("%41"), {}, 200),
    "limit: digits": lambda: (f"{SLICES}?limit=" + "9" * MOST, {}, 400),
    "limit: quotes": lambda: (f"{SLICES}?limit=" + filled("%22"), {}, 400),
    "timeoutSeconds: controls": lambda: (f"{SLICES}?timeoutSeconds=" + filled("%00"), {}, 400),
    "timeoutSeconds: characters of nobody": lambda: (f"{SLICES}?timeoutSeconds=" + filled("%EE%80%80"), {}, 400),
    "resourceVersion: digits": lambda: (f"{SLICES}?resourceVersion=" + "9" * MOST, {}, 400),
    "continue": lambda: (f"{SLICES}?continue=" + "A" * MOST, {}, 400),
    "labels": lambda: (f"{SLICES}?labelSelector=" + filled("a{n},", 300 << 10) + "b", {}, 200),
    "labels, the same again and again": lambda: (f"{SLICES}?labelSelector=" + filled("a,") + "a", {}, 200),
    "labels, one set": lambda: (f"{SLICES}?labelSelector=a+in+(" + filled("v{n},", 800 << 10) + "v)", {}, 200),
    "labels, not": lambda: (f"{SLICES}?labelSelector=" + filled("!a{n},", 300 << 10) + "b", {}, 200),
    "bad labels": lambda: (f"{SLICES}?labelSelector=a+in+(" + filled("-{n},", 800 << 10) + "-)", {}, 400),
    "labels and a name": lambda: (
        f"{SLICES}?fieldSelector=metadata.name%3Da&labelSelector=" + filled("a,") + "b",
        {},
        200,
    ),
    "fields": lambda: (
        f"{SLICES}?fieldSelector=" + filled("metadata.name!%3Da{n},", 300 << 10) + UNKNOWN_NODE,
        {},
        200,
    ),
    "unknown fields": lambda: (f"{SLICES}?fieldSelector=" + filled("f{n}%3Da,", 300 << 10), {}, 400),
    "slashes": lambda: ("/" * MOST, {}, 404),
    "segments": lambda: (SLICES + filled("/a"), {}, 404),
    "an escaped name": lambda: (SLICES + "/" + filled("%41"), {}, 404),
    "a name of controls": lambda: (SLICES + "/" + filled("%01"), {}, 404),
    "a path of HTML": lambda: ("/" + filled("<&>"), {}, 404),
    "checks to leave out": lambda: ("/livez?verbose&" + filled("exclude={n}&", 100 << 10), {}, 200),
    "checks of escapes to leave out": lambda: (
        "/livez?verbose&" + filled("exclude={n}" + "%00" * 28 + "&", 960 << 10),
        {},
        200,
    ),
}


@pytest.mark.parametrize("case", HEADS)
@pytest.mark.parametrize("who", ["the administrator", "nobody"])
def test_head_before_the_body_is_judged_within_the_step_budget(dev: DevServer, case: str, who: str) -> None:
    """The suite's detector fails this test when a step of the server's loop takes too long."""
    target, headers, expected = HEADS[case]()
    administrator = who == "the administrator"

    reply = dev.request("GET", target, headers=headers, context=dev.context(certificate=administrator))

    assert reply.status == expected if administrator else reply.status < 500
    assert len(reply.body) <= 1 << 20 or reply.status == 200


LARGE_TARGETS = {
    # The request line: Go takes the first two, and so does this server; the others end the connection.
    "a path": "GET /apis/{long} HTTP/1.1",
    "a query": f"GET {SLICES}?a={{long}} HTTP/1.1",
    "a selector": f"GET {SLICES}?labelSelector=x+in+({{long}}) HTTP/1.1",
    "a host": "GET https://{long}/apis HTTP/1.1",
    "a whole URL": "GET https://server/apis/{long} HTTP/1.1",
    "no host": "GET https:///{long} HTTP/1.1",
    "no URL": "GET {long} HTTP/1.1",
    "CONNECT": "CONNECT {long}:443 HTTP/1.1",
}


def test_large_heads_over_and_over_leave_nothing_behind(dev: DevServer) -> None:
    """Readers of a target, a header or a name once kept the last 128 of them, or kept one with an error."""
    assert dev.process is not None
    process = Process(dev.process.pid)
    context = dev.context(certificate=False)

    def send(line: str, *headers: str) -> None:
        head = "\r\n".join([line, "Host: server", "Connection: close", *headers, "", ""]).encode()
        with (
            socket.create_connection(("127.0.0.1", dev.port)) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as client,
            contextlib.suppress(
                OSError
            ),  # the server does not read the rest of a head that it refuses at its first character
        ):
            client.sendall(head)
            while client.recv(1 << 16):
                pass

    def send_all(count: int, *, offset: int) -> None:
        for n in range(offset, offset + count):
            for line in LARGE_TARGETS.values():
                send(line.format(long=f"v{n}," + "v" * (MOST - 1000)))
            send(f"GET {SLICES} HTTP/1.1", f"Accept: a/b{n}," + filled("a/b,", 900 << 10))
            # Short targets are remembered, bad selectors too; the cookie is not.
            send(f"GET {SLICES}?fieldSelector=b{n} HTTP/1.1", "Cookie: " + "c" * MOST)

    send_all(4, offset=0)
    before = process.memory()
    send_all(12, offset=4)
    assert process.memory() - before < 20 << 20


@pytest.mark.parametrize("line", ["GET /apis HTTP/0.9", "GET /apis HTTP/2.0", "GET /apis"])
async def test_another_protocol_is_refused_as_gos_server_does(dev: DevServer, line: str) -> None:
    reader, writer = await dev.open()
    writer.write(f"{line}\r\nHost: server\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert answer.startswith((b"HTTP/1.1 505 ", b"HTTP/1.1 400 "))
    assert b"\r\nConnection: close\r\n" in answer
    assert not line.endswith("0.9") or answer.endswith(b"505 HTTP Version Not Supported: unsupported protocol version")


DENSE_BYTES = 60_000
APPLIED = f'{{"apiVersion":"{GROUP}/v1","kind":"DeviceClass","metadata":{{%s}}}}'
DENSE = {
    "strategic finalizers": ("strategic-merge-patch+json", '{"metadata":{"finalizers":[%s]}}', "{}"),
    "strategic owners": ("strategic-merge-patch+json", '{"metadata":{"ownerReferences":[%s]}}', '{"uid":"u@"}'),
    "strategic configurations": ("strategic-merge-patch+json", '{"spec":{"config":[%s]}}', "{}"),
    "merged finalizers": ("merge-patch+json", '{"metadata":{"finalizers":[%s]}}', "{}"),
    "merged labels": ("merge-patch+json", '{"metadata":{"labels":{%s}}}', '"k@":1'),
    "merged configurations": ("merge-patch+json", '{"spec":{"config":[%s]}}', '{"x":1}'),
    "operations": ("json-patch+json", "[%s]", '{"op":"add","path":"/metadata/labels/k@","value":"v"}'),
    "tests": ("json-patch+json", "[%s]", '{"op":"test","path":"","value":[{}]}'),
    "applied finalizers": ("apply-patch+yaml", APPLIED % '"finalizers":[%s]', "{}"),
}


@pytest.mark.parametrize("case", DENSE)
def test_a_patch_of_many_small_values_is_judged_within_the_budget(dev: DevServer, case: str) -> None:
    """The outcome does not matter; the detector of steps looks at the server."""
    (media, form, element), name = DENSE[case], case.replace(" ", "-")
    # A test that a step makes fail runs twice.
    assert dev.request("POST", CLASSES, {"metadata": {"name": name}, "spec": {}}).status in (201, 409)
    every = [element.replace("@", str(at)) for at in range(DENSE_BYTES // (len(element) + 1))]
    for count in (len(every) // 10, len(every) // 4, len(every) // 2, len(every)):
        body = form % ",".join(every[:count])
        query = "?fieldValidation=Ignore" + ("&fieldManager=m" if "apply" in media else "")
        reply = dev.request("PATCH", f"{CLASSES}/{name}{query}", body, headers={"Content-Type": f"application/{media}"})
        assert reply.status in (200, 400, 413, 422, 500), reply.text


def test_object_of_very_many_labels_delays_no_other_request(dev: DevServer) -> None:
    """Reading it, writing it again and deleting it do not either; the detector of steps looks at the server."""
    path = f"{CLASSES}/labelled"
    labels = {f"l{n}": "v" for n in range(85_000)}
    new = {"metadata": {"name": "labelled", "labels": labels}, "spec": {}}
    assert dev.request("POST", CLASSES, new).status == 201
    assert dev.request("POST", CLASSES, new).status == 409

    for selector, found in (("l84999,l7=v", 1), ("l84999!=v", 0), (",".join(f"l{n}" for n in range(14)), 1)):
        listed = dev.request("GET", f"{CLASSES}?labelSelector={selector},!bench&fieldSelector=metadata.name%3Dlabelled")
        assert len(listed.json["items"]) == found, selector
    merge = {"Content-Type": "application/merge-patch+json"}
    assert dev.request("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, headers=merge).status == 200
    assert dev.request("PUT", path, {"metadata": {"name": "labelled"}, "spec": {}}).status == 200
    assert dev.request("PUT", path, new).status == 200
    assert dev.request("DELETE", path).status == 200


def test_a_patch_makes_nothing_that_is_too_heavy_to_be_sent(dev: DevServer) -> None:
    """The patch gives one member of an owner; the object has four of each."""
    assert dev.request("POST", CLASSES, {"metadata": {"name": "owned"}, "spec": {}}).status == 201
    owners = [{"uid": f"u{at}"} for at in range(40_000)]
    patch = {"metadata": {"ownerReferences": owners}}
    whole = [{"apiVersion": "", "kind": "", "name": "", **owner} for owner in owners]

    patched = dev.request(
        "PATCH", f"{CLASSES}/owned", patch, headers={"Content-Type": "application/strategic-merge-patch+json"}
    )
    put = dev.request("PUT", f"{CLASSES}/owned", {"metadata": {"name": "owned", "ownerReferences": whole}, "spec": {}})

    assert status(patched) == status(put)
    assert patched.status == 413


SMALL = {
    "merge-patch+json": '{"metadata":{"labels":{"a":"b"}}}',
    "strategic-merge-patch+json": '{"metadata":{"labels":{"a":"c"}}}',
    "json-patch+json": '[{"op":"add","path":"/metadata/labels","value":{"a":"d"}}]',
    "apply-patch+yaml": APPLIED.replace('"metadata":{', '"metadata":{"labels":{"a":"e"},') % "",
}


def test_a_small_patch_of_a_large_object_is_judged_within_the_budget(dev: DevServer) -> None:
    """The freed objects are as large as the object; the detector of steps looks at the server."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": f"u{at}"} for at in range(18_000)]
    large = {"metadata": {"name": "large", "ownerReferences": owners}, "spec": {}}
    assert dev.request("POST", CLASSES, large).status == 201
    for media, body in SMALL.items():
        query = "?fieldManager=m&force=true" if "apply" in media else ""
        reply = dev.request("PATCH", f"{CLASSES}/large{query}", body, headers={"Content-Type": f"application/{media}"})
        assert reply.status == 200, reply.text[:1000]
        assert len(reply.json["metadata"]["ownerReferences"]) == len(owners)
    assert dev.request("DELETE", f"{CLASSES}/large").status == 200


def test_without_its_gate_a_shard_selector_says_nothing(dev: DevServer) -> None:
    for selector in ("nonsense", "shardRange(object.metadata.uid,'0x0000000000000000','0x0000000000000001')", "%20"):
        listed = dev.request("GET", f"{CLASSES}?shardSelector={selector}")
        assert listed.status == 200
        assert listed.json["metadata"].keys() == {"resourceVersion"}
    assert dev.request("GET", f"{CLASSES}?shardSelector=nonsense&watch=1&timeoutSeconds=1").status == 200
