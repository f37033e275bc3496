"""Two kinds that exist for these tests alone, so that discovery is not tested against what we happen to serve."""

from __future__ import annotations

from apiserver.apimachinery.request import Query
from apiserver.discovery.answers import Answer, Question
from apiserver.discovery.core import Core
from apiserver.discovery.groups import Discovery
from apiserver.kinds.served import Kinds
from apiserver.schema import shapes
from apiserver.schema.resource import Resource, Subresource
from apiserver.schema.types import Field, Presence, Struct

METADATA = Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS)
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3+x"}
PATHS = ("/healthz", "/metrics")

BOAT = Resource(
    kind="Boat",
    plural="boats",
    singular="boat",
    namespaced=True,
    group="sea.example",
    shape=Struct(name="Boat", fields=(METADATA,)),
    short_names=("bt",),
    categories=("all",),
    subresources=(Subresource(name="status", owns=("status",)), Subresource(name="crew", owns=("crew",))),
)
PIER = Resource(
    kind="Pier",
    plural="apiers",
    singular="apier",
    namespaced=False,
    group="sea.example",
    shape=Struct(name="Pier", fields=(METADATA,)),
)
DISCOVERY = Discovery(Kinds([BOAT, PIER]), version=VERSION, paths=PATHS)
ALONE = Discovery(Kinds([BOAT, PIER]), version=VERSION, paths=PATHS, core=Core())
"""Without a kube-apiserver in front."""


def ask(
    path: str,
    *,
    method: str = "GET",
    query: str = "",
    accept: str = "",
    user_agent: str = "",
    if_none_match: str = "",
    discovery: Discovery = DISCOVERY,
) -> Answer:
    question = Question(
        method=method,
        path=path,
        query=Query(query),
        accept=accept,
        user_agent=user_agent,
        if_none_match=if_none_match,
    )
    return discovery.answer(question)
