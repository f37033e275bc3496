"""Input that no well-meaning client sends: upstream's answer, and the server lives on."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from typing import Any

import pytest

from tests.fixtures import certificates
from tests.fixtures.server import DevServer, Reply

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
def test_identity_headers_without_a_front_proxy_certificate_are_not_believed(dev: DevServer, certificate: bool) -> None:
    spoofed = {"X-Remote-User": "mallory", "x-remote-group": "system:masters"}
    context = dev.context(certificate=certificate)

    reply = dev.request("GET", f"{CLASSES}/none", headers=spoofed, context=context)

    if certificate:
        assert reply.status == 404
    else:
        assert status(reply)[2].startswith(
            f'deviceclasses.{GROUP} "none" is forbidden: User "system:anonymous" cannot get'
        )


def test_a_certificate_of_an_unknown_authority_gets_no_connection(dev: DevServer) -> None:
    context = dev.context(certificate=False)
    certificates.load_self_signed(context, "system:masters")

    with pytest.raises((ssl.SSLError, ConnectionError)):
        dev.request("GET", CLASSES, context=context)


def test_upgrade_is_400_and_closes_the_connection_before_a_smuggled_request(dev: DevServer) -> None:
    async def smuggle() -> bytes:
        reader, writer = await dev.open()
        upgrade = f"GET {CLASSES} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        second = f"GET {CLASSES} HTTP/1.1\r\nHost: x\r\n\r\n"
        writer.write((upgrade + second).encode())
        answer = await asyncio.wait_for(reader.read(), 20)
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
def test_what_is_not_http_is_400_and_closed(dev: DevServer, raw: bytes) -> None:
    async def send() -> bytes:
        reader, writer = await dev.open()
        writer.write(raw)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer

    first = asyncio.run(send()).split(b"\r\n")[0]

    assert first.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))


def test_a_user_in_thousands_of_groups_is_served(dev: DevServer) -> None:
    async def send() -> bytes:
        reader, writer = await dev.open()
        groups = "".join(f"X-Remote-Group: group-{i:05}\r\n" for i in range(3000))
        writer.write(f"GET /readyz HTTP/1.1\r\nHost: x\r\n{groups}Connection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer

    assert asyncio.run(send()).startswith(b"HTTP/1.1 200")


def test_head_and_invented_methods_are_405(dev: DevServer) -> None:
    assert dev.request("HEAD", CLASSES).status == 405
    assert dev.request("OPTIONS", CLASSES).status == 405
