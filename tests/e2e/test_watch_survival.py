"""A watch through kube-apiserver on which nothing happens for minutes. It is opened with the cluster, so that other tests fill the time."""

from __future__ import annotations

import time

import pytest

from tests.e2e import objects
from tests.e2e.conftest import Idle
from tests.e2e.controlplane.bed import Bed


@pytest.mark.timeout(400)
def test_watch_survives_three_silent_minutes_and_ends_with_its_server(bed: Bed, idle: Idle) -> None:
    while (left := idle.since + 180 - time.monotonic()) > 0:
        time.sleep(left)

    with bed.connect() as admin:
        assert admin.ask("POST", objects.claims(idle.namespace), objects.claim("at-last")).status == 201
        event = idle.stream.next()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "at-last")

        bed.replicas[0].replace()

        assert idle.stream.rest() == []
        assert admin.ask("GET", f"{objects.claims(idle.namespace)}/at-last").status == 200
