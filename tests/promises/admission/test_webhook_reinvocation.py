"""Reinvocation: webhooks that are called once more after a later change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.promises.admission.hooks import add, allow, patch
from tests.promises.admission.rig import Rig
from tests.promises.api.client import claim

Object = dict[str, Any]
IF_NEEDED, NEVER = "IfNeeded", "Never"


def label(name: str, value: str = "x") -> Object:
    return patch(add(f"/metadata/labels/{name}", value))


def hooks(rig: Rig, *policies_and_answers: tuple[str, Sequence[Object]], **more: Any) -> None:
    """Webhooks a, b, c … of one configuration."""
    named = zip("abcdef", policies_and_answers, strict=False)
    made = [rig.hook(*answers, name=name, reinvocationPolicy=policy, **more) for name, (policy, answers) in named]
    rig.webhooks("mutating", *made)


def asked(rig: Rig) -> str:
    rig.api.create(rig.claims, claim("c", labels={"l": ""}))
    return "".join(call.hook for call in rig.calls())


@pytest.mark.parametrize(
    ("webhooks", "order"),
    [
        ([(IF_NEEDED, [allow()]), (NEVER, [label("b")])], "aba"),
        ([(IF_NEEDED, [label("a")]), (NEVER, [label("b")])], "aba"),
        ([(NEVER, [allow()]), (IF_NEEDED, [label("b")])], "ab"),
        ([(IF_NEEDED, [allow()]), (IF_NEEDED, [allow()])], "ab"),
        ([(IF_NEEDED, [label("a")])], "a"),
        ([(IF_NEEDED, [label("a")]), (IF_NEEDED, [label("b")]), (IF_NEEDED, [label("c")])], "abcab"),
        ([(IF_NEEDED, [allow()]), (IF_NEEDED, [label("b")]), (IF_NEEDED, [allow()])], "abca"),
        ([(IF_NEEDED, [allow()]), (NEVER, [allow()]), (IF_NEEDED, [allow()]), (NEVER, [label("d")])], "abcdac"),
        ([(IF_NEEDED, [allow(), label("a")]), (IF_NEEDED, [label("b")])], "abab"),
        ([(IF_NEEDED, [allow(), label("a")]), (IF_NEEDED, [allow()]), (NEVER, [label("c")])], "abcab"),
    ],
)
def test_webhook_with_reinvocation_policy_is_called_again_after_a_change(
    rig: Rig, webhooks: Sequence[tuple[str, Sequence[Object]]], order: str
) -> None:
    hooks(rig, *webhooks)
    assert asked(rig) == order


def test_a_patch_that_says_what_is_so_is_a_change_of_what_was_just_stamped(rig: Rig) -> None:
    """The moment at which fields came to be managed loses its nanoseconds with the first patch, whatever that says."""
    hooks(rig, (IF_NEEDED, [allow()]), (NEVER, [label("l", "")]))
    assert asked(rig) == "aba"
    rig.api.patch(f"{rig.claims}/c", {"metadata": {"labels": {"l": ""}}})
    assert "".join(call.hook for call in rig.calls()[3:]) == "ab"


def test_a_second_patch_that_says_what_is_so_is_no_change(rig: Rig) -> None:
    hooks(rig, (NEVER, [label("m")]), (IF_NEEDED, [allow()]), (NEVER, [label("l", "")]))
    assert asked(rig) == "abc"


def test_the_second_time_a_webhook_sees_all_changes_under_another_uid(rig: Rig) -> None:
    hooks(rig, (IF_NEEDED, [label("a")]), (NEVER, [label("b")]))
    assert asked(rig) == "aba"

    first, _, again = rig.calls()
    assert again.request["object"]["metadata"]["labels"] == {"l": "", "a": "x", "b": "x"}
    assert first.request["uid"] != again.request["uid"]
    same = {"uid", "object"}
    assert {k: v for k, v in first.request.items() if k not in same} == {
        k: v for k, v in again.request.items() if k not in same
    }


def test_webhook_that_stops_matching_is_not_called_again(rig: Rig) -> None:
    picky = rig.hook(
        name="a",
        reinvocationPolicy=IF_NEEDED,
        objectSelector={"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]},
    )
    rig.webhooks("mutating", picky, rig.hook(label("b"), name="b"))
    assert asked(rig) == "ab"


def test_webhook_that_did_not_match_first_is_not_called_in_round_two(rig: Rig) -> None:
    picky = rig.hook(name="a", reinvocationPolicy=IF_NEEDED, objectSelector={"matchLabels": {"b": "x"}})
    rig.webhooks("mutating", picky, rig.hook(label("b"), name="b"))
    assert asked(rig) == "b"


def test_rounds_go_through_all_configurations(rig: Rig) -> None:
    rig.webhooks("mutating", rig.hook(name="b", reinvocationPolicy=IF_NEEDED), name=f"{rig.mine}-b")
    rig.webhooks("mutating", rig.hook(label("c"), name="c"), name=f"{rig.mine}-c")
    rig.webhooks("mutating", rig.hook(name="a", reinvocationPolicy=IF_NEEDED), name=f"{rig.mine}-a")
    assert asked(rig) == "abcab"


def test_two_webhooks_of_one_name_are_two(rig: Rig) -> None:
    first = rig.hook(name="a", reinvocationPolicy=IF_NEEDED)
    second = {**rig.hook(label("b"), name="b"), "name": first["name"]}
    rig.webhooks("mutating", first, name=f"{rig.mine}-1")
    rig.webhooks("mutating", second, name=f"{rig.mine}-2")
    assert asked(rig) == "aba"


def test_in_the_second_round_a_denial_counts_as_in_the_first(rig: Rig) -> None:
    denial = allow(allowed=False, status={"message": "seen twice", "code": 403})
    hooks(rig, (IF_NEEDED, [allow(), denial]), (NEVER, [label("b")]))

    refusal = rig.api.refusal("POST", rig.claims, claim("c", labels={"l": ""}))

    assert refusal.code == 403
    assert refusal.message.endswith("denied the request: seen twice")


def test_validating_webhooks_see_what_the_second_round_left(rig: Rig) -> None:
    hooks(rig, (IF_NEEDED, [allow(), label("again")]), (NEVER, [label("b")]))
    rig.webhook("validating", name="v")
    assert asked(rig) == "abav"
    assert rig.calls("v")[0].request["object"]["metadata"]["labels"] == {"l": "", "b": "x", "again": "x"}
