"""The order in which plugins are asked, and what becomes of what they say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apiserver import metrics, resources
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.chain import Chain
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import CreateOptions
from apiserver.apimachinery.request import Annotations, Level, User, Warnings
from apiserver.collectors import Histogram, Summary
from apiserver.filters.request_info import parse
from apiserver.kinds.served import Kinds
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
    """A plugin of both sorts; changes nothing."""

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


async def test_plugin_that_wants_it_has_all_called_exactly_once_more() -> None:
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


class Choosy(Silent):
    """Is asked about creates only."""

    operations = ("CREATE",)


async def test_a_plugin_is_asked_about_its_operations_only() -> None:
    choosy, change = Choosy(), attributes()
    chain = Chain([choosy])
    await chain.validate(change)
    change.operation = "DELETE"
    await chain.validate(change)
    assert len(choosy.judged) == 1


def counted(family: Histogram | Summary) -> Callable[[], dict[tuple[str, ...], tuple[int, float]]]:
    """Observations since the call, by labels: how often, and how many seconds."""

    def read() -> dict[tuple[str, ...], tuple[int, float]]:
        return {values: (child.count, child.sum) for values, child in family.children()}

    before = read()
    nothing = (0, 0.0)

    def since() -> dict[tuple[str, ...], tuple[int, float]]:
        found = {}
        for values, (count, seconds) in read().items():
            was = before.get(values, nothing)
            if count > was[0]:
                found[values] = (count - was[0], round(seconds - was[1], 3))
        return found

    return since


async def test_steps_and_plugins_are_timed_refusals_apart() -> None:
    now = 0.0

    class Slow(Silent):
        async def admit(self, attributes: Attributes) -> Object | None:
            nonlocal now
            now += 1
            attributes.reinvocation.wanted = True
            return None

        async def validate(self, attributes: Attributes) -> None:
            nonlocal now
            now += 3

    plugins, steps = counted(metrics.ADMISSION_CONTROLLER_SECONDS), counted(metrics.ADMISSION_STEP_SECONDS)
    summary = counted(metrics.ADMISSION_STEP_SUMMARY)
    chain = Chain([Slow(), Never()], clock=lambda: now)
    await chain.admit(attributes())
    with pytest.raises(StatusError, match="never"):
        await chain.validate(attributes())
    assert plugins() == {
        ("Slow", "admit", "CREATE", "false"): (2, 2.0),
        ("Slow", "validate", "CREATE", "false"): (1, 3.0),
        ("Never", "validate", "CREATE", "true"): (1, 0.0),
    }
    assert steps() == {("admit", "CREATE", "false"): (1, 2.0), ("validate", "CREATE", "true"): (1, 3.0)}
    assert summary() == steps()
