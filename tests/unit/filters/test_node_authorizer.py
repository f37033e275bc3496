from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.apimachinery.selectors import Given
from apiserver.cluster.errors import ClusterError
from apiserver.filters.node_authorizer import NodeAuthorizer
from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES
from apiserver.storage.errors import Initializing

GROUP = "resource.example.com"
NODE = User("system:node:n1", groups=("system:nodes",))
SLICE = RequestInfo(
    "", "get", "GET", is_resource=True, prefix="apis", group=GROUP, version="v1", resource="resourceslices", name="a"
)


class Everything:
    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        return Decision(allowed=True)


class Filling:
    """A store whose memory does not get filled."""

    filling = True

    def __init__(self) -> None:
        self.waited: list[float] = []

    async def wait_until_filled(self, *, seconds: float) -> None:
        self.waited.append(seconds)

    def view(self) -> None:
        raise Initializing(1.0)


@pytest.fixture
def store() -> Filling:
    return Filling()


@pytest.fixture
def authorizer(store: Filling) -> NodeAuthorizer:
    stores = cast("Any", {f"{GROUP}/resourceslices": store})
    return NodeAuthorizer(Everything(), Kinds(RESOURCES, group=GROUP), stores)


async def reason(authorizer: NodeAuthorizer, **members: Any) -> str:
    decision = await authorizer.authorize(NODE, replace(SLICE, **members))
    assert not decision.allowed
    return decision.reason


async def test_node_is_refused_when_its_slice_cannot_be_looked_up(authorizer: NodeAuthorizer, store: Filling) -> None:
    with pytest.raises(ClusterError, match="initializing"):
        await authorizer.authorize(NODE, SLICE)
    assert store.waited == [10.0]


@pytest.mark.parametrize(("release", "named"), [(V1_36, ""), (V1_37, "node: ")], ids=str)
async def test_the_reasons_are_upstreams(store: Filling, release: Release, named: str) -> None:
    """They begin with PREFIX."""
    stores = cast("Any", {f"{GROUP}/resourceslices": store})
    authorizer = NodeAuthorizer(Everything(), Kinds(RESOURCES, group=GROUP, release=release), stores)
    assert await reason(authorizer, subresource="status") == f"{named}cannot authorize ResourceSlice subresources"
    assert await reason(authorizer, name="") == f"{named}No Object name found"
    assert await reason(authorizer, verb="unsafe-delete-ignore-read-errors") == (
        f"{named}only the following verbs are allowed for a ResourceSlice: "
        "get, watch, list, create, update, patch, delete, deletecollection"
    )


async def test_every_version_of_a_kind_is_restricted_and_no_other_group(authorizer: NodeAuthorizer) -> None:
    assert "nodeName field selector" in await reason(authorizer, verb="list", name="", version="v1beta1")
    for allowed in (
        replace(SLICE, group="other.example.com"),
        replace(SLICE, resource="deviceclasses"),
        replace(SLICE, verb="create"),
    ):
        assert (await authorizer.authorize(NODE, allowed)).allowed


@pytest.mark.parametrize("text", ["spec.nodeName", "spec.nodeName=n1\\", f"spec.nodeName=n1,spec.driver={'x' * 5000}"])
async def test_a_selector_that_cannot_be_read_or_is_long_narrows_nothing(authorizer: NodeAuthorizer, text: str) -> None:
    narrowed = "node: can only list/watch/deletecollection resourceslices with nodeName field selector"
    assert await reason(authorizer, verb="list", name="", selectors=Given("", text)) == narrowed
