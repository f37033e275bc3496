"""The folder of throw-away certificates: what is kept, and in which form clients get the keys."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from apiserver.serving import pki
from tests.fixtures.authorities import NOW

NAMES = ("ca", "serving", "client")
SEC1 = b"-----BEGIN EC PRIVATE KEY-----\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "certs"


def kit(folder: Path) -> pki.Kit:
    return pki.kit(folder, hosts=["localhost"], user="me", groups=["system:masters"], now=NOW)


def keys(folder: Path) -> dict[str, bytes]:
    return {name: (folder / f"{name}.key").read_bytes() for name in NAMES}


def as_pkcs8(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, password=None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_keys_are_written_in_sec1_which_java_clients_read(folder: Path) -> None:
    made = kit(folder)

    assert made.client.key_pem.startswith(SEC1)
    assert all(pem.startswith(SEC1) for pem in keys(folder).values())


def test_keys_of_an_old_folder_are_converted_and_stay_the_same_keys(folder: Path) -> None:
    made, before = kit(folder), keys(folder)
    for name, pem in before.items():
        (folder / f"{name}.key").write_bytes(as_pkcs8(pem))

    again = kit(folder)

    assert keys(folder) == before
    assert (again.client.cert_pem, again.client.key_pem, again.ca_pem) == (
        made.client.cert_pem,
        made.client.key_pem,
        made.ca_pem,
    )
    assert {stat.S_IMODE((folder / f"{name}.key").stat().st_mode) for name in NAMES} == {0o600}


def test_openssl_loads_each_pair_of_the_folder(folder: Path) -> None:
    kit(folder)
    for name in NAMES:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
