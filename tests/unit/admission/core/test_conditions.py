"""Match conditions: who is asked at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from apiserver.admission.core.conditions import ConditionErrors, MatchConditions
from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Match
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.schema.resource import Object
from tests.unit.admission.changes import GROUP, KINDS, change
from tests.unit.admission.core.test_expressions import ENDLESS

YES, NO, DIVIDED, MISSING = "object.kind == 'ResourceClaim'", "object == null", "1 / 0 == 1", "object.nope == 1"
FAILED = "expression '{}' resulted in error: {}"
DIVISION, KEY = FAILED.format(DIVIDED, "division by zero"), FAILED.format(MISSING, "no such key: nope")


async def nobody(user: User, info: RequestInfo) -> Decision:
    return Decision(allowed=False)


def conditions(*texts: str) -> MatchConditions | None:
    found: list[Object] = [{"name": f"c{at}", "expression": text} for at, text in enumerate(texts)]
    return MatchConditions.of(found, Expressions(nobody), name="hook", kind="webhook", step="validating")


async def judged(*texts: str) -> bool | str:
    """Whether they match, or the text of their errors."""
    found, attributes = conditions(*texts), change()
    assert found is not None
    try:
        return await found.matches(attributes, Match(attributes.resource))
    except ConditionErrors as e:
        return str(e)


def test_no_conditions_need_no_evaluation() -> None:
    assert conditions() is None
    assert MatchConditions.of(None, Expressions(nobody), name="hook", kind="webhook", step="admit") is None


@pytest.mark.parametrize(
    ("texts", "outcome"),
    [
        ([YES], True),
        ([YES, NO, YES], False),
        ([DIVIDED, NO], False),
        ([NO, DIVIDED], False),
        ([YES, DIVIDED], DIVISION),
        ([DIVIDED, YES, MISSING], f"[{DIVISION}, {KEY}]"),
        ([DIVIDED, DIVIDED], DIVISION),
        (["namespaceObject.metadata.name == 'ns'"], FAILED.format("namespaceObject.metadata.name == 'ns'", "no such key: metadata")),
        ([f"{ENDLESS} || true"] * 3, "validation failed due to running out of cost budget, no further validation rules will be run"),
    ],
)  # fmt: skip
async def test_all_have_to_be_true_and_one_that_is_false_counts_more_than_errors(
    texts: Sequence[str], outcome: bool | str
) -> None:
    assert await judged(*texts) == outcome


async def test_policies_see_the_matched_version_and_the_requested_resource() -> None:
    """As in upstream, where only the kind is the matched one."""
    older = KINDS.at(GROUP, "v1beta1", "resourceclaims")
    found = conditions(
        "request.kind.version == 'v1beta1' && request.requestKind.version == 'v1' && request.resource.version == 'v1' && "
        "object.apiVersion.endsWith('/v1beta1')"
    )
    assert found is not None
    assert older is not None
    claim: Object = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": []}}}
    assert await found.matches(change(new=claim), Match(older)) is True
