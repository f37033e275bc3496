"""Every sort of client reads a compressed list, whose parts were compressed one by one and at different times."""

from __future__ import annotations

import asyncio
import base64
import json
import pathlib
import shutil
import ssl
import subprocess
import zlib
from collections.abc import Callable, Iterator

import aiohttp
import pytest
import urllib3

from tests.e2e.conftest import Kubectl
from tests.e2e.controlplane import kubectl as real_kubectl
from tests.fixtures.server import DevServer

GROUP = "resource.sluice.dev"
CLASSES = f"/apis/{GROUP}/v1/deviceclasses"
GZIP = {"Accept-Encoding": "gzip", "Accept": "application/json"}


def classes(first: int, count: int) -> str:
    annotations = {"note": "of some length " * 150}
    more = {"annotations": annotations, "labels": {"decoded": "yes"}}
    metadata = [{"name": f"decoded-{at:03}", **more} for at in range(first, first + count)]
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "DeviceClass"}
    return "\n---\n".join(json.dumps({**kind, "metadata": one, "spec": {}}) for one in metadata)


@pytest.fixture(scope="module")
def path(dev: DevServer, kubectl_of_module: Kubectl) -> str:
    """A list of which most is kept compressed from before, some was written since, and the rest is new."""
    kubectl_of_module("create", "-f", "-", stdin=classes(0, 120))
    for _ in range(2):
        assert dev.request("GET", CLASSES, headers=GZIP).headers["Content-Encoding"] == "gzip"
    kubectl_of_module("label", f"deviceclasses.{GROUP}", "decoded-060", "new=1")
    kubectl_of_module("create", "-f", "-", stdin=classes(120, 5))
    version = dev.request("GET", CLASSES).json["metadata"]["resourceVersion"]
    return f"{CLASSES}?resourceVersion={version}&resourceVersionMatch=Exact"


@pytest.fixture(scope="module")
def kubectl_of_module(dev: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    home = tmp_path_factory.mktemp("kubectl")

    def run(*words: str, stdin: str = "", check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        return real_kubectl.run(*words, kubeconfig=dev.kubeconfig, home=home, stdin=stdin, check=check, **environ)

    yield run
    assert dev.request("DELETE", f"{CLASSES}?labelSelector=decoded%3Dyes").status == 200


def pair_of(dev: DevServer, folder: pathlib.Path, kubectl: Kubectl) -> tuple[str, str, str]:
    """Files of the CA, the certificate and the key of the administrator."""
    names = []
    for name, field in {
        "ca": "clusters[0].cluster.certificate-authority-data",
        "certificate": "users[0].user.client-certificate-data",
        "key": "users[0].user.client-key-data",
    }.items():
        text = kubectl("config", "view", "--raw", "-o", f"jsonpath={{.{field}}}").stdout
        (folder / name).write_bytes(base64.b64decode(text))
        names.append(str(folder / name))
    return names[0], names[1], names[2]


def by_zlib(dev: DevServer, path: str) -> bytes:
    reader = zlib.decompressobj(31)
    text = reader.decompress(dev.request("GET", path, headers=GZIP).body)
    assert (reader.eof, reader.unused_data) == (True, b"")
    return text


def by_urllib3(dev: DevServer, path: str) -> bytes:
    with urllib3.PoolManager(ssl_context=dev.context()) as pool:
        reply = pool.request("GET", f"https://127.0.0.1:{dev.port}{path}", headers=GZIP)
        assert reply.headers["Content-Encoding"] == "gzip"
        return bytes(reply.data)


def by_aiohttp(dev: DevServer, path: str) -> bytes:
    async def asked(context: ssl.SSLContext) -> bytes:
        url = f"https://127.0.0.1:{dev.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=GZIP, ssl=context) as reply:
            assert reply.headers["Content-Encoding"] == "gzip"
            return await reply.read()

    return asyncio.run(asked(dev.context()))


@pytest.mark.parametrize("read", [by_zlib, by_urllib3, by_aiohttp])
def test_python_reads_a_compressed_list(dev: DevServer, path: str, read: Callable[[DevServer, str], bytes]) -> None:
    assert read(dev, path) == dev.request("GET", path).body


def test_go_reads_a_compressed_list(dev: DevServer, path: str, kubectl: Kubectl) -> None:
    """Go's HTTP client asks for gzip by itself."""
    assert kubectl("get", "--raw", path).stdout.encode() == dev.request("GET", path).body


def test_curl_reads_a_compressed_list(dev: DevServer, path: str, kubectl: Kubectl, tmp_path: pathlib.Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    ca, certificate, key = pair_of(dev, tmp_path, kubectl)
    url = f"https://127.0.0.1:{dev.port}{path}"
    words = [
        "curl",
        "--silent",
        "--fail",
        "--compressed",
        "--user-agent",
        "a-program",
        "--cacert",
        ca,
        "--cert",
        certificate,
        "--key",
        key,
        url,
    ]
    assert subprocess.run(words, check=True, capture_output=True).stdout == dev.request("GET", path).body


NODE = """
const fs = require("fs"), https = require("https"), zlib = require("zlib");
const [url, ca, cert, key] = process.argv.slice(1);
const asked = {ca: fs.readFileSync(ca), cert: fs.readFileSync(cert), key: fs.readFileSync(key), headers: {"Accept-Encoding": "gzip"}};
https.get(url, asked, reply => reply.pipe(zlib.createGunzip()).pipe(process.stdout));
"""


def test_node_reads_a_compressed_list(dev: DevServer, path: str, kubectl: Kubectl, tmp_path: pathlib.Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("needs node")
    url = f"https://127.0.0.1:{dev.port}{path}"
    words = ["node", "-e", NODE, url, *pair_of(dev, tmp_path, kubectl)]
    assert subprocess.run(words, check=True, capture_output=True).stdout == dev.request("GET", path).body
