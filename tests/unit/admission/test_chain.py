"""The order in which plugins are asked, and what becomes of what they say."""

from __future__ import annotations

import pytest

from apiserver import resources
from apiserver.admission.attributes import Attributes
from apiserver.admission.chain import Chain
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import CreateOptions
from apiserver.apimachinery.request import Annotations, Level, User, Warnings
from apiserver.filters.request_info import parse
from apiserver.schema.kinds import Kinds
from apiserver.schema.resource import Object

GROUP = "things.example.com"
CLAIMS = next(kind for kind in Kinds(resources.RESOURCES, group=GROUP) if kind.plural == "resourceclaims")


def attributes() -> Attributes:
    return Attributes(
        operation="CREATE",
        options=CreateOptions(dry_run=True, field_manager="m"),
        info=parse("POST", f"/apis/{GROUP}/v1/namespaces/ns/resourceclaims"),
        user=User("jane"),
        resource=CLAIMS,
        name="c",
        object={"steps": []},
        old=None,
        warnings=Warnings(),
        annotations=Annotations(),
    )


class Adding:
    """Mutating only."""

    def __init__(self, name: str, *, again: bool = False) -> None:
        self.name = name
        self.again = again

    async def admit(self, attributes: Attributes) -> Object | None:
        assert attributes.object is not None
        reinvocation = attributes.reinvocation
        step = f"{self.name} again" if reinvocation.again else self.name
        reinvocation.wanted = reinvocation.wanted or self.again
        count = reinvocation.values.setdefault(self.name, []) if self.again else []
        count.append(step)
        return {"steps": [*attributes.object["steps"], step]}


class Silent:
    """Of both sorts; changes nothing."""

    def __init__(self) -> None:
        self.judged: list[Object | None] = []

    async def admit(self, attributes: Attributes) -> Object | None:
        return None

    async def validate(self, attributes: Attributes) -> None:
        self.judged.append(attributes.object)


class Never:
    """Validating only."""

    async def validate(self, attributes: Attributes) -> None:
        raise errors.bad_request("never")


async def test_each_mutating_plugin_sees_what_the_one_before_it_made() -> None:
    silent, change = Silent(), attributes()
    before = change.object
    chain = Chain([Adding("a"), silent, Adding("b")])
    await chain.admit(change)
    await chain.validate(change)
    assert change.object == {"steps": ["a", "b"]}
    assert silent.judged == [{"steps": ["a", "b"]}]
    assert before == {"steps": []}


async def test_whoever_wants_it_has_all_asked_exactly_once_more() -> None:
    change = attributes()
    await Chain([Adding("a"), Adding("b", again=True)]).admit(change)
    assert change.object == {"steps": ["a", "b", "a again", "b again"]}
    assert change.reinvocation.values == {"b": ["b", "b again"]}


async def test_the_first_refusal_ends_it() -> None:
    silent = Silent()
    chain = Chain([Never(), silent])
    await chain.admit(attributes())
    with pytest.raises(StatusError, match="never"):
        await chain.validate(attributes())
    assert silent.judged == []


async def test_attributes_say_where_and_how() -> None:
    change = attributes()
    assert (change.namespace, change.subresource, change.dry_run) == ("ns", "", True)


@pytest.mark.parametrize("key", ["plain", "a/b/c", "Not A Prefix/x", "a.example.com/-x"])
def test_a_note_has_a_prefix_and_a_name(key: str) -> None:
    change = attributes()
    with pytest.raises(ValueError, match="has invalid format"):
        change.annotate(key, "x")
    change.annotate("a.example.com/x", "y", Level.REQUEST)
    assert change.annotations == {"a.example.com/x": ("y", Level.REQUEST)}
