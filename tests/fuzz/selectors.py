"""Random device selectors, judged by a server through its API and by us directly. Where they differ, one of the two is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from apiserver import resources
from apiserver.apimachinery import releases
from apiserver.apimachinery.fieldpath import Path
from apiserver.apimachinery.releases import Release
from apiserver.schema.featuregate import Gates
from tests.fixtures.server import Reply

SELECTORS = 32
"""In one request of a claim, and requests in a claim."""

_PLACE = re.compile(r"spec\.devices\.requests\[(\d+)\]\.exactly\.selectors\[(\d+)\]\.cel\.expression")


class Server(Protocol):
    """Anything that answers requests."""

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Reply: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """An expression with what the server said of it and what we say: texts of causes, empty for no objection."""

    expression: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.expression!r}\n  server: {self.theirs!r}\n  here:   {self.ours!r}"


def selectors(release: Release = releases.NEWEST, **gates: bool) -> resources.DeviceSelectors:
    """Return our judge as it is in a release. `gates` are the feature gates that differ from their defaults."""
    declared = [gate for resource in releases.at(release, resources.RESOURCES) for gate in resource.gates]
    return resources.DeviceSelectors(Gates(declared, gates, release=release))


def differences(
    server: Server,
    path: str,
    expressions: Sequence[str],
    *,
    judge: resources.DeviceSelectors,
    requests: int = SELECTORS,
) -> Iterator[Difference]:
    """Asks for claims, dry, each with `requests` × 32 of the expressions."""
    size = requests * SELECTORS
    for start in range(0, len(expressions), size):
        batch = expressions[start : start + size]
        said = _said(server.ask("POST", path, _claim(batch), dryRun="All"))
        for at, expression in enumerate(batch):
            request, selector = divmod(at, SELECTORS)
            field = Path("spec").child("devices").child("requests").index(request).child("exactly").child("selectors")
            place = field.index(selector).child("cel").child("expression")
            ours = [error.cause() for error in judge.problems(expression, place, stored=False)]
            theirs = said.get((request, selector), [])
            if ours != theirs:
                yield Difference(expression, _shown(theirs), _shown(ours))


def _claim(expressions: Sequence[str]) -> dict[str, Any]:
    wishes = [
        {
            "name": f"r{start}",
            "exactly": {
                "deviceClassName": "gpu",
                "selectors": [{"cel": {"expression": text}} for text in expressions[start : start + SELECTORS]],
            },
        }
        for start in range(0, len(expressions), SELECTORS)
    ]
    return {"metadata": {"name": "judged"}, "spec": {"devices": {"requests": wishes}}}


def _said(reply: Reply) -> Mapping[tuple[int, int], list[dict[str, str]]]:
    """The causes by request and selector; none when the claim was accepted."""
    if reply.status == 201:
        return {}
    assert reply.status == 422, reply.text
    said: dict[tuple[int, int], list[dict[str, str]]] = {}
    for cause in reply.json["details"]["causes"]:
        place = _PLACE.fullmatch(cause["field"])
        assert place is not None, cause
        said.setdefault((int(place[1]), int(place[2])), []).append(cause)
    return said


def _shown(causes: Sequence[Mapping[str, str]]) -> str:
    return "; ".join(f"{cause['reason']}: {cause['message']}" for cause in causes)
