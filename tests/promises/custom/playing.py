"""Play a scenario against a server."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.promises.custom.scenarios import Kinds, Play, Scenario

Connect = Callable[[], http.client.HTTPSConnection]


def played(
    scenario: Scenario, connect: Connect, namespace: str, kinds: Kinds
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each step with its answer, as `Play.answer` tells it."""
    play = Play(namespace, kinds)
    with contextlib.ExitStack() as opened:
        kept = opened.enter_context(contextlib.closing(connect()))
        streams: dict[str, http.client.HTTPResponse] = {}
        for step in scenario.steps:
            if "read" in step:
                lines = [streams[step["read"]].readline() for _ in range(step["count"])]
                yield step, {"answer": [play.value(json.loads(line), step) for line in lines]}
                continue
            method, _, where = step["do"].partition(" ")
            path = play.path(where)
            connection = kept
            if "open" in step:
                connection = opened.enter_context(contextlib.closing(connect()))
            body = play.body(step, path)
            connection.request(method, path, body=None if body is None else body.encode(), headers=play.headers(step))
            answer = connection.getresponse()
            if "open" in step:
                streams[step["open"]] = answer
                assert answer.status == 200, answer.read()
                yield step, {"code": answer.status}
            else:
                yield step, play.answer(answer.status, answer.headers, answer.read(), step)
