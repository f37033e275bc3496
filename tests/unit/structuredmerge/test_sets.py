from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from structuredmerge import sets
from structuredmerge.paths import Path, field, index, item, keyed, text
from structuredmerge.sets import EMPTY, Builder, Set
from structuredmerge.types import DEDUCED, List, Map, Member, Scalar, Type
from tests.unit.structuredmerge.fields import PATHS, SETS

A, B, C, SPEC = map(field, ("a", "b", "c", "spec"))
NAMED = keyed({"name": "a"})


def members(set_: Set) -> set[Path]:
    found = list(set_.paths())
    assert len(set(found)) == len(found)
    return set(found)


def well_formed(set_: Set) -> bool:
    """No node is there for nothing."""
    return all(child and well_formed(child) for child in set_.children.values())


@given(st.lists(PATHS))
def test_a_set_has_the_paths_that_it_was_made_of(paths: list[Path]) -> None:
    made = sets.of(paths)
    assert members(made) == set(paths)
    assert all(made.has(path) for path in paths)
    assert made == sets.of(reversed(paths))
    assert well_formed(made)


@given(SETS, PATHS)
def test_a_path_is_in_a_set_if_and_only_if_it_is_one_of_its_paths(set_: Set, path: Path) -> None:
    assert set_.has(path) is (path in members(set_))


def test_root_has_no_owner() -> None:
    assert not sets.of([()])
    assert not sets.of([(A,)]).has(())


@given(SETS, SETS)
def test_union_intersection_and_difference_are_those_of_the_paths(a: Set, b: Set) -> None:
    for result, expected in (
        (a | b, members(a) | members(b)),
        (a & b, members(a) & members(b)),
        (a - b, members(a) - members(b)),
    ):
        assert members(result) == expected
        assert well_formed(result)
        assert bool(result) is bool(expected)


@given(SETS, SETS)
def test_a_recursive_difference_takes_what_is_below_too(a: Set, b: Set) -> None:
    kept = {path for path in members(a) if not any(path[:n] in members(b) for n in range(1, len(path) + 1))}
    assert members(a.without(b)) == kept
    assert well_formed(a.without(b))


@given(SETS, SETS, SETS)
def test_the_algebra_of_sets_holds(a: Set, b: Set, c: Set) -> None:
    assert a | b == b | a
    assert a & b == b & a
    assert (a | b) | c == a | (b | c)
    assert (a & b) & c == a & (b & c)
    assert a & (b | c) == (a & b) | (a & c)
    assert (a - b) | (a & b) == a
    assert (a | b) - (a & b) == (a - b) | (b - a)
    assert not (a - b) & b
    assert a - (b | c) == (a - b) - c
    assert a.without(b | c) == a.without(b).without(c)
    assert (a | b).without(c) == a.without(c) | b.without(c)


@given(SETS, SETS)
def test_operands_stay_unchanged_and_equal_results_are_the_same_object(a: Set, b: Set) -> None:
    before = members(a), members(b)
    union, difference, rest = a | b, a - b, a.without(b)
    assert union | b is union
    assert union & union is union
    assert difference - b is difference
    assert rest.without(b) is rest
    assert a | EMPTY is a
    assert a - EMPTY is a
    assert a - a is a.without(a) is a & EMPTY is EMPTY
    assert before == (members(a), members(b))


def test_intersection_with_a_missing_parent_or_child_keeps_the_other() -> None:
    parent, child = sets.of([(A,)]), sets.of([(A, B)])
    assert parent - child == parent.without(child) == parent
    assert child - parent == child
    assert child.without(parent) == EMPTY
    assert not parent & child


def test_members_come_before_what_is_below_elements() -> None:
    paths = [(A, A), (C,), (A,), (A, B, C), (item(1),), (index(0),), (NAMED,), (A, NAMED)]
    assert [text(path) for path in sets.of(paths).paths()] == [
        ".a",
        ".c",
        '[name="a"]',
        "[=1]",
        "[0]",
        ".a.a",
        '.a[name="a"]',
        ".a.b.c",
    ]


@given(SETS)
def test_the_paths_of_a_node_are_in_order(set_: Set) -> None:
    found = [path[-1] for path in set_.paths() if len(path) == 1]
    assert found == sorted(found)


@given(st.lists(PATHS))
def test_builder_returns_added_paths_and_no_node_for_visited_ones(paths: list[Path]) -> None:
    root = Builder()
    for path in paths:
        node = root
        for element in path[:-1]:
            node = node.child(element)
            node.child(SPEC).child(A)
        node.add(path[-1])
    assert root.built() == sets.of(paths)
    assert well_formed(root.built())


STRING = Type(scalar=Scalar.STRING)
TREE = Type()
TREE.map = Map(
    {
        "a": Member(TREE),
        "b": Member(Type(list=List(TREE, atomic=False, keys=("name",)))),
        "c": Member(Type(map=Map({}, element=TREE))),
        "spec": Member(STRING),
    }
)


def test_a_named_closure_adds_declared_fields_that_have_children() -> None:
    closed = sets.of([(A, B, NAMED, SPEC), (C, A, A, A), (A, item(1), A, B), (field("unknown"), A)]).named(TREE)
    assert members(closed) - members(
        sets.of([(A, B, NAMED, SPEC), (C, A, A, A), (A, item(1), A, B), (field("unknown"), A)])
    ) == {
        # `a` and `b` are declared; the item is not, and what a map holds under a name is not.
        (A,),
        (A, B),
        (C,),
        (C, A, A),
    }


@given(SETS)
def test_named_closure_only_adds_parent_fields_and_is_idempotent(set_: Set) -> None:
    closed = set_.named(TREE)
    added = members(closed) - members(set_)
    assert members(set_) <= members(closed)
    assert all(
        path[-1][0] == 0 and any(other[: len(path)] == path != other for other in members(set_)) for path in added
    )
    assert closed.named(TREE) is closed
    assert set_.named(DEDUCED) is set_
    assert set_.named(None) is set_
