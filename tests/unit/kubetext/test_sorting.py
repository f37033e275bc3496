"""Order, however many elements there are."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from apiserver.apimachinery import selectors
from kubetext import sorting
from tests.fixtures import steps
from tests.fixtures.calls import Longest


@pytest.mark.parametrize("count", [0, 1, 10, sorting.RUN, sorting.RUN + 1, 20_000])
def test_elements_come_out_sorted_however_many_they_are(count: int) -> None:
    elements = [(1, f"u{i * 7919 % 20_011}") for i in range(count)]
    assert list(sorting.in_order(elements)) == sorted(elements)
    assert list(sorting.in_order(frozenset(elements))) == sorted(elements)
    names = {name: i for i, (_, name) in enumerate(elements)}
    assert list(sorting.by_name(names).items()) == sorted(names.items())


@pytest.mark.parametrize("count", [0, 1, 10, sorting.RUN, sorting.RUN + 1, 20_000])
def test_elements_with_equal_keys_stay_in_their_order(count: int) -> None:
    elements = [(f"k{i * 7919 % 101}", i) for i in range(count)]
    assert list(sorting.by_key(elements, lambda element: element[0])) == sorted(
        elements, key=lambda element: element[0]
    )
    assert sorting.members([key for key, _ in elements]) == {key for key, _ in elements}


TERMS = [f"{number:07x}" for number in random.Random(1).sample(range(1 << 28), 20_000)]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (selectors.parse_labels, f"a notin ({','.join(TERMS)})"),
        (selectors.parse_fields, ",".join(f"a!={term}" for term in TERMS)),
    ],
    ids=["labels", "fields"],
)
def test_the_interpreter_is_not_held_by_a_selector_of_very_many_values(
    read: Callable[[str], object], text: str
) -> None:
    with Longest() as held:
        read(text)
    assert held.seconds < 0.006 * steps.slowness(), held.where
