"""The store's address, and the passwords and TLS files that a connection needs."""

from __future__ import annotations

import datetime as dt
import os
import ssl
from pathlib import Path

import pytest

from apiserver.config import store_address
from apiserver.config.store_address import Node
from apiserver.serving import pki
from apiserver.storage import access
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Rejected, pack
from tests.fixtures.proxy import Proxy
from tests.fixtures.valkey import PASSWORD, Server, patient

SENTINELS = "redis+sentinel://u:p%2Fq@h:1,[::1]:2,k/main?db=3"


def test_sentinels_and_the_name_are_read_from_the_url() -> None:
    found = store_address.parse(SENTINELS)
    assert (found.url, found.name, found.tls) == ("", "main", False)
    assert found.sentinels == (Node("h", 1), Node("::1", 2), Node("k", 26379))


def test_servers_get_the_user_and_the_database_of_the_url_and_sentinels_do_not() -> None:
    found = store_address.parse(SENTINELS)
    assert found.of_store(Node("10.0.0.1", 6379)) == "redis://u:p%2Fq@10.0.0.1:6379/?db=3"
    assert found.of_store(Node("fd00::1", 6379)) == "redis://u:p%2Fq@[fd00::1]:6379/?db=3"
    assert found.of_sentinel(found.sentinels[1]) == "redis://[::1]:2/"


def test_nodes_of_a_cluster_have_the_user_and_the_tls_of_the_url() -> None:
    found = store_address.parse("valkeys+cluster://u:p%2Fq@h:1,[::1],h:1")
    assert (found.url, found.sentinels, found.tls) == ("", (), True)
    assert found.cluster == (Node("h", 1), Node("::1", 6379))
    assert found.of_store(Node("fd00::1", 7001)) == "rediss://u:p%2Fq@[fd00::1]:7001/"


@pytest.mark.parametrize(
    ("scheme", "meant"), [("valkey", "redis"), ("valkeys", "rediss"), ("redis", "redis"), ("rediss", "rediss")]
)
def test_valkey_schemes_mean_the_redis_ones(scheme: str, meant: str) -> None:
    assert store_address.parse(f"{scheme}://u:p@h:1/2").url == f"{meant}://u:p@h:1/2"
    found = store_address.parse(f"{scheme}+sentinel://h/main")
    assert found.of_store(Node("h", 1)) == f"{meant}://h:1/"
    assert found.tls == (meant == "rediss")


async def test_password_file_is_read_again_for_each_connection(shared_server: Server, tmp_path: Path) -> None:
    file = tmp_path / "password"
    options = patient(f"unix://{shared_server.socket}", password_file=file)
    with pytest.raises(Rejected, match=r"password file .* cannot be read"):
        await Connection.open(options, "test")
    file.write_text("wrong\n")
    with pytest.raises(Rejected, match="password"):
        await Connection.open(options, "test")
    file.write_text(f"{PASSWORD}\n")
    connection = await Connection.open(options, "test")
    assert await connection.call(pack("PING")) == b"PONG"
    await connection.close()


async def test_user_of_the_url_has_the_password_of_the_file(own_server: Server, tmp_path: Path) -> None:
    own_server("ACL", "SETUSER", "jane", "on", ">hers", "+@all", "~*")
    file = tmp_path / "password"
    file.write_text("hers")
    options = patient(f"unix://{own_server.socket}?username=jane&password=older", password_file=file)
    connection = await Connection.open(options, "test")
    assert await connection.call(pack("ACL", "WHOAMI")) == b"jane"
    await connection.close()


class Authority:
    """An authority and a server's certificate of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        kit = pki.kit(folder, hosts=["127.0.0.1"], user="x", groups=[], now=dt.datetime.now(dt.UTC))
        self.pem, self.folder = kit.ca_pem, folder
        self.serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.serving.load_cert_chain(folder / "serving.crt", folder / "serving.key")


async def test_authorities_are_read_again_when_their_file_changes(shared_server: Server, tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    proxy = Proxy(shared_server.socket, context=second.serving)
    await proxy.start()
    file = tmp_path / "ca.pem"
    file.write_bytes(first.pem)
    options = patient(proxy.url, ca_file=file)
    with pytest.raises(Rejected, match="CERTIFICATE_VERIFY_FAILED"):
        await Connection.open(options, "test")
    file.write_bytes(b"half of it")
    with pytest.raises(Rejected, match=r"the authorities in .*ca\.pem cannot be used"):
        await Connection.open(options, "test")
    part = tmp_path / "part"
    part.write_bytes(first.pem + second.pem)
    part.replace(file)
    connection = await Connection.open(options, "test")
    assert await connection.call(pack("PING")) == b"PONG"
    await connection.close()
    await proxy.stop()


async def test_client_certificate_is_shown_to_a_store_that_demands_one(shared_server: Server, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "a")
    authority.serving.verify_mode = ssl.CERT_REQUIRED
    authority.serving.load_verify_locations(cadata=authority.pem.decode())
    proxy = Proxy(shared_server.socket, context=authority.serving)
    await proxy.start()
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    with pytest.raises(Rejected):
        await Connection.open(patient(proxy.url, ca_file=ca), "test")
    cert, key = authority.folder / "client.crt", authority.folder / "client.key"
    connection = await Connection.open(patient(proxy.url, ca_file=ca, cert_file=cert, key_file=key), "test")
    assert await connection.call(pack("PING")) == b"PONG"
    await connection.close()
    await proxy.stop()


def test_settings_that_contradict_each_other_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "some"
    file.write_text("some\n")

    def told(url: str, **settings: object) -> str:
        return "\n".join(access.errors(StoreOptions(url=url, **settings)))  # type: ignore[arg-type]

    assert "TLS" in told("redis://h", ca_file=file)
    assert "needs --redis-cert-file" in told("rediss://h", key_file=file)
    assert "sentinels" in told("redis://h", sentinel_password_file=file)
    assert "needs --redis-sentinel-password-file" in told("redis+sentinel://h/m", sentinel_username="jane")
    assert "cannot be used" in told("rediss://h", cert_file=file)
    assert "empty" in told("redis://h", password_file=Path(os.devnull))
    assert told("redis+sentinel://h/m", sentinel_username="jane", sentinel_password_file=file) == ""
