"""LIST and DELETE of a collection of which a field selector leaves one object: a read of that object, in the shape of a list."""

from __future__ import annotations

import pytest

from tests.promises.api.client import Client, Object, claim, names, token, version

ONE = "metadata.name=b"


@pytest.fixture
def then(api: Client, mine: str) -> int:
    """The version at which a and b were there as they were made; b has changed since."""
    for name in "ab":
        last = api.create(api.claims(mine), claim(name))
    api.patch(f"{api.claims(mine)}/b", {"metadata": {"labels": {"changed": "yes"}}})
    return version(last)


def has_changed(listed: Object) -> bool:
    assert names(listed) == ["b"]
    return "labels" in listed["items"][0]["metadata"]


def test_limited_list_answers_at_least_its_version_and_accepts_old_ones(api: Client, mine: str, then: int) -> None:
    for path, fields in ((api.claims(mine), ONE), (api.all_claims, f"metadata.namespace={mine},{ONE}")):
        for stated in (then, 1):
            listed = api.get(path, fieldSelector=fields, limit=1, resourceVersion=stated)
            assert (has_changed(listed), listed["metadata"].keys()) == (True, {"resourceVersion"})
        very = api.get(path, fieldSelector=fields, limit=1, resourceVersion=then, resourceVersionMatch="Exact")
        assert (has_changed(very), version(very)) == (False, then)


def test_a_name_in_any_namespace_may_be_that_of_several_objects(api: Client, mine: str, then: int) -> None:
    selected = f"{ONE},metadata.namespace!=none"
    listed = api.get(api.all_claims, fieldSelector=selected, limit=500, resourceVersion=then)

    [found] = [item for item in listed["items"] if item["metadata"]["namespace"] == mine]
    assert ("labels" in found["metadata"], version(listed)) == (False, then)


def test_a_token_makes_it_a_list_again(api: Client, mine: str, then: int) -> None:
    listed = api.get(api.claims(mine), fieldSelector=ONE, limit=1, continue_=token(then, "/a"))

    assert (has_changed(listed), version(listed)) == (False, then)


def test_a_deletion_with_a_limit_does_not_offer_to_go_on(api: Client, mine: str, then: int) -> None:
    deleted = api.delete(api.claims(mine), fieldSelector=ONE, limit=1)

    assert (has_changed(deleted), deleted["metadata"].keys()) == (True, {"resourceVersion"})
    assert names(api.get(api.claims(mine))) == ["a"]


def test_a_version_of_a_deletion_is_only_a_precondition_however_old_it_is(api: Client, mine: str, then: int) -> None:
    refusal = api.refusal("DELETE", api.claims(mine), fieldSelector=ONE, resourceVersion=1)
    assert (refusal.code, refusal.reason) == (409, "Conflict")
    assert "the ResourceVersion in the precondition (1) does not match" in refusal.message

    refusal = api.refusal("DELETE", api.claims(mine), fieldSelector="metadata.name!=b", resourceVersion=1)
    assert (refusal.code, refusal.reason) == (410, "Expired")
    assert names(api.get(api.claims(mine))) == ["a", "b"]


@pytest.mark.parametrize("name", ["..", "b/c", "b%"])
def test_field_value_that_is_no_name_selects_nothing(api: Client, mine: str, then: int, name: str) -> None:
    assert names(api.delete(api.claims(mine), fieldSelector=f"metadata.name={name}")) == []
    assert names(api.get(api.claims(mine))) == ["a", "b"]
