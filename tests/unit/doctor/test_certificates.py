"""The serving certificate from the Secret, where no route leads to the server."""

from __future__ import annotations

import base64
import datetime as dt

import pytest

from apiserver.doctor.checks.certificates import CHECKS
from apiserver.doctor.installation import Address, Unreached
from apiserver.serving import pki
from tests.fixtures.authorities import issue
from tests.unit.doctor.recorded import PLACE, SERVICE, Object, Recorded, codes, findings, service

NOW = dt.datetime.now(dt.UTC)
AUTHORITY = pki.make_ca("sluice-ca", now=NOW)
SECRET = f"{PLACE}/secrets/sluice-serving"
HOST = "sluice.sluice-system.svc"


class Unreachable(Recorded):
    async def address(self) -> Address:
        raise Unreached("no route")

    async def bundle(self) -> bytes:
        return AUTHORITY.cert_pem


def secret(*hosts: str, after: float = 0.0, ca: pki.Pair = AUTHORITY) -> Object:
    made = pki.make_serving(ca, "sluice", hosts=hosts, now=NOW + dt.timedelta(days=after))
    return {"data": {"tls.crt": base64.b64encode(made.cert_pem).decode()}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (secret(HOST), []),
        (secret("*.sluice-system.svc"), []),
        (secret("*.svc"), ["certificate-name"]),
        (secret(HOST, after=-800), ["certificate-expired"]),
        (secret(HOST, after=3), ["certificate-not-yet-valid"]),
        (secret(HOST, after=-360), ["certificate-expires-soon"]),
        (secret("other", ca=pki.make_ca("other", now=NOW)), ["certificate-name", "certificate-untrusted"]),
        ({"data": {"tls.crt": ""}}, ["secret-missing"]),
        ({"data": None}, ["secret-missing"]),
    ],
)
async def test_doctor_judges_the_certificate_of_the_secret(found: Object, expected: list[str]) -> None:
    [check] = CHECKS
    assert await codes(check, Unreachable({SERVICE: service(), SECRET: found})) == expected


async def test_intermediate_certificates_of_the_secret_make_a_chain() -> None:
    root = issue("root", ca=True)
    between = issue("between", root, ca=True)
    leaf = issue("sluice", between)
    [check] = CHECKS

    class Chained(Unreachable):
        async def bundle(self) -> bytes:
            return root.pem

    text = base64.b64encode(leaf.pem + between.pem).decode()
    assert "certificate-untrusted" not in await codes(
        check, Chained({SERVICE: service(), SECRET: {"data": {"tls.crt": text}}})
    )
    alone = base64.b64encode(leaf.pem).decode()
    assert "certificate-untrusted" in await codes(
        check, Chained({SERVICE: service(), SECRET: {"data": {"tls.crt": alone}}})
    )


async def test_certificate_is_skipped_without_a_route_and_without_a_secret() -> None:
    [check] = CHECKS
    assert [finding.code for finding in await findings(check, Unreachable({SERVICE: service()}))] == ["not-reachable"]
