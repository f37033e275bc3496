"""/debug/api_priority_and_fairness: the state of flow control, for users whom the authorizer allows.

Upstream: kubernetes/apiserver `pkg/util/flowcontrol/apf_controller_debug.go`.
"""

from __future__ import annotations

from collections.abc import Callable

from apiserver.filters.state import Request
from apiserver.flowcontrol import dumps
from apiserver.flowcontrol.control import FlowControl
from apiserver.runtime.workers import Workers
from apiserver.serving.health import TEXT, Document, Response

FOLDER = "/debug/api_priority_and_fairness/"
DETAILS = "includeRequestDetails"


def documents(control: FlowControl, *, workers: Workers) -> dict[str, Document]:
    """Return the three tables by path. Threads print them."""

    def page(table: Callable[[Request], dumps.Table]) -> Document:
        async def answer(request: Request) -> Response:
            text = await workers.run(table(request))
            return await request.exchange.respond(200, TEXT, text.encode())

        return answer

    def of_requests(request: Request) -> dumps.Table:
        return dumps.requests(control, details=bool(request.exchange.query.text(DETAILS)))

    return {
        f"{FOLDER}dump_priority_levels": page(lambda _: dumps.priority_levels(control)),
        f"{FOLDER}dump_queues": page(lambda _: dumps.queues(control)),
        f"{FOLDER}dump_requests": page(of_requests),
    }
