"""Rights to delete unreadable objects, and the audit of attempts."""

from __future__ import annotations

import pytest

from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError
from tests.fixtures.composed import JANE, composed
from tests.fixtures.valkey import Server

GATE = "--feature-gates=AllowUnsafeMalformedObjectDeletion=true"
OPTION = "ignoreStoreReadErrorWithClusterBreakingPotential"
VERB = "unsafe-delete-ignore-read-errors"
REFUSED = Decision(allowed=False, reason="not today")


class Authorizer:
    """Allows everything but that verb."""

    def __init__(self, answer: Decision | ClusterError) -> None:
        self.asked: list[tuple[str, str, str, str]] = []
        self._answer = answer

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        self.asked.append((user.name, info.verb, info.resource, info.name))
        if info.verb != VERB:
            return Decision(allowed=True)
        if isinstance(self._answer, ClusterError):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (REFUSED, f'not permitted to do "{VERB}", reason: not today'),
        (Decision(allowed=False, denied=True), f'not permitted to do "{VERB}", reason: '),
        (ClusterError("away"), f'error while checking permission for "{VERB}", away'),
    ],
)
async def test_refusal_of_the_authorizer_is_reported(
    shared_server: Server, answer: Decision | ClusterError, why: str
) -> None:
    authorizer = Authorizer(answer)
    async with composed(shared_server, GATE, authorizer=authorizer) as server:
        reply = await server.ask("DELETE", f"{server.classes}/a", {OPTION: True}, peer=JANE.peer)

    assert (reply.status, reply.json["reason"]) == (403, "Forbidden")
    assert reply.json["message"] == f'deviceclasses.{server.group} "a" is forbidden: {why}'
    assert authorizer.asked == [("jane", "delete", "deviceclasses", "a"), ("jane", VERB, "deviceclasses", "a")]


async def test_refused_requests_need_no_question(shared_server: Server) -> None:
    authorizer = Authorizer(REFUSED)
    async with composed(shared_server, GATE, authorizer=authorizer) as server:
        options = {OPTION: True, "gracePeriodSeconds": 0}
        reply = await server.ask("DELETE", f"{server.classes}/a", options, peer=JANE.peer)

    assert reply.status == 422
    assert [verb for _, verb, _, _ in authorizer.asked] == ["delete"]


async def test_disabled_gate_causes_no_question(shared_server: Server) -> None:
    authorizer = Authorizer(REFUSED)
    async with composed(shared_server, GATE.replace("true", "false"), authorizer=authorizer) as server:
        reply = await server.ask("DELETE", f"{server.classes}/a", {OPTION: True}, peer=JANE.peer)

    assert reply.status == 404
    assert [verb for _, verb, _, _ in authorizer.asked] == ["delete"]
