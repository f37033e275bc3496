"""Read /metrics of a server, as the user who runs `sluice top`."""

from __future__ import annotations

import asyncio

from apiserver.cluster.client import Client
from apiserver.cluster.errors import ClusterError
from apiserver.top.reading import Reading

PATH = "/metrics"
RIGHT = "kubectl create clusterrolebinding metrics-of-sluice --clusterrole=system:monitoring --user=…"
"""Lets a user read metrics of all servers (kubernetes/kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`)."""


async def scrape(client: Client) -> Reading:
    """Return one reading. Raises ClusterError."""
    answer = await client.probe(PATH)
    if answer.status in (401, 403):
        raise ClusterError(f"this user may not read {PATH} of {client.server}: {answer.status}; do: {RIGHT}")
    if answer.status != 200:
        raise ClusterError(f"{PATH} of {client.server} answers {answer.status}")
    try:
        return await asyncio.to_thread(Reading.of, answer.body.decode(), client.clock())
    except ValueError as error:
        raise ClusterError(f"{PATH} of {client.server} cannot be read: {error}") from None
