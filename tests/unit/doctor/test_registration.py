"""The specs of APIServices, and the trust that kube-apiserver publishes."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.cluster.requestheader import CLIENT_CA, NAME, NAMESPACE, PROXY_CA
from apiserver.doctor.checks import registration, trust
from apiserver.doctor.checks.trust import trust_findings
from apiserver.serving import pki
from tests.unit.doctor.recorded import Object, Recorded, codes

NOW = dt.datetime.now(dt.UTC)
CA = pki.make_ca("sluice-ca", now=NOW).cert_pem.decode()
OTHER = pki.make_ca("front-proxy-ca", now=NOW).cert_pem.decode()
OLD = pki.make_ca("old", now=NOW - dt.timedelta(days=9000)).cert_pem.decode()


def apiservice() -> Object:
    spec = {
        "group": "resource.sluice.dev",
        "version": "v1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 21,
        "service": {"namespace": "sluice-system", "name": "sluice", "port": 443},
        "caBundle": base64.b64encode(CA.encode()).decode(),
    }
    available = [{"type": "Available", "status": "True", "reason": "Passed"}]
    return {"metadata": {"name": "v1.resource.sluice.dev"}, "spec": spec, "status": {"conditions": available}}


def label(found: Object) -> None:
    found["metadata"]["labels"] = {registration.AUTOMANAGED: "true"}


def spec(**changed: Any) -> Callable[[Object], None]:
    return lambda found: found["spec"].update(changed)


def unavailable(reason: str) -> Callable[[Object], None]:
    return lambda found: found["status"]["conditions"][0].update(status="False", reason=reason, message="because")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda found: None, []),
        (label, ["apiservice-automanaged"]),
        (spec(group="other.sluice.dev"), ["apiservice-wrong-group"]),
        (spec(service=None), ["apiservice-local"]),
        (spec(caBundle="bm90aGluZw=="), ["ca-bundle-unreadable"]),
        (spec(caBundle="%"), ["ca-bundle-unreadable"]),
        (lambda found: found["status"].clear(), ["apiservice-unavailable"]),
        (unavailable("FailedDiscoveryCheck"), ["apiservice-unavailable"]),
        (unavailable("NewReasonOfALaterRelease"), ["apiservice-unavailable"]),
    ],
)
async def test_doctor_names_what_is_wrong_with_an_apiservice(
    change: Callable[[Object], None], expected: list[str]
) -> None:
    wanted, found = apiservice(), copy.deepcopy(apiservice())
    change(found)
    installation = Recorded({"/apis/apiregistration.k8s.io/v1/apiservices/v1.resource.sluice.dev": found})
    installation.registered = [wanted]
    [check] = registration.CHECKS
    assert await codes(check, installation) == expected


PUBLISHED = {
    CLIENT_CA: CA,
    PROXY_CA: OTHER,
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({PROXY_CA: ""}, ["front-proxy-ca-missing"]),
        ({PROXY_CA: "nothing"}, ["trust-unreadable"]),
        ({"requestheader-allowed-names": "front-proxy-client"}, ["trust-unreadable"]),
        ({PROXY_CA: OLD}, ["front-proxy-ca-expired"]),
        ({CLIENT_CA: OLD}, ["client-ca-expired"]),
        ({PROXY_CA: CA, "requestheader-allowed-names": "[]"}, ["front-proxy-any-client"]),
        ({PROXY_CA: CA}, []),
    ],
)
def test_doctor_names_what_is_wrong_with_the_published_trust(changed: dict[str, str], expected: list[str]) -> None:
    assert [finding.code for finding in trust_findings(PUBLISHED | changed, time.time())] == expected


async def test_doctor_names_the_trust_that_is_missing() -> None:
    [check] = trust.CHECKS
    assert await codes(check, Recorded({})) == ["trust-missing"]
    published = {f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}": json.loads(json.dumps({"data": PUBLISHED}))}
    assert await codes(check, Recorded(published)) == []
