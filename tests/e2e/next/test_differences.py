"""The work list: topics, what is one item, and what is one line."""

from __future__ import annotations

import pytest

from tests.e2e.next import differences
from tests.e2e.next.differences import TOPICS, Difference


@pytest.mark.parametrize(
    ("scenario", "title", "members", "topic"),
    [
        ("routes.openapi", "GET ^/openapi/v3", ["body"], "OpenAPI"),
        ("routes.meta", "GET ^/version", ["body.minor"], "discovery"),
        ("table.kinds", "GET /resourceslices", ["body.columnDefinitions[2].description"], "tables"),
        ("list.expired", "LIST as Table", ["body.rows[0].cells[1]"], "tables"),
        ("update.immutable", "PUT /x", ["body.details.causes[0].message"], "kinds and validation"),
        ("delete.finalizers", "PATCH /x", ["body.details.causes[1].field"], "kinds and validation"),
        ("delete.options", "DELETE /x", ["status"], "deletion"),
        ("watch.old", "WATCH /x?watch=1", ["events[0].object.columnDefinitions[0].name"], "watch"),
        ("apply.invalid", "APPLY list", ["body.message"], "apply and patches"),
        ("format.gzip", "GET /x", ["headers.Vary[0]"], "representations"),
        ("something.new", "GET /x", ["status"], "requests"),
    ],
)
def test_step_belongs_to_the_topic_of_what_differs(scenario: str, title: str, members: list[str], topic: str) -> None:
    assert differences.topic_of_step(scenario, title, members) == topic
    assert topic in TOPICS


@pytest.mark.parametrize(
    ("file", "topic"),
    [
        ("tests/promises/api/test_watches.py", "watch"),
        ("tests/promises/api/test_field_management.py", "apply and patches"),
        ("tests/promises/api/test_unsafe_deletion.py", "deletion"),
        ("tests/promises/api/test_device_selectors.py", "CEL"),
        ("tests/promises/api/test_who_may_write.py", "authorization"),
        ("tests/promises/admission/test_webhook_patches.py", "admission"),
        ("tests/promises/api/test_of_tomorrow.py", "requests"),
    ],
)
def test_promise_belongs_to_the_topic_of_its_file(file: str, topic: str) -> None:
    assert differences.topic_of_promise(file) == topic
    assert topic in TOPICS


def test_changes_are_named_by_their_smallest_part() -> None:
    before = {"a": {"b": 1, "gone": {"x": 1}}, "list": ["one", "two"]}
    after = {"a": {"b": 2, "new": [3]}, "list": ["two", "three"]}
    assert differences.changes(before, after) == [
        "! a.b: 1 → 2",
        '- a.gone: {"x": 1}',
        "+ a.new: [3]",
        "- list: one",
        "+ list: three",
    ]
    assert differences.changes(before, before) == []


def test_many_changes_of_one_form_are_one_line() -> None:
    names = [f"kind{number}" for number in range(differences.REPEATED)]
    before = {name: {"items": {"default": {}, "$ref": f"#/components/schemas/io.{name}"}} for name in names}
    after = {name: {"items": {"other": name}} for name in names}
    lines = differences.changes(before | {"more": 1}, after | {"more": 2})
    assert lines[:2] == ["- …items.default: {} (5 times)", "- …items.$ref: … (5 times)"]
    assert lines[-1] == "! more: 1 → 2"


def test_equal_differences_are_one_item_with_all_places() -> None:
    def step(number: int) -> Difference:
        return Difference("watch", f"watch.a #{number}", [f"! body.items[{number}].message:", "      A 1", "      B 2"])

    text = differences.page(
        "Kubernetes 1.99.0 beside 1.98.0", [*map(step, range(1, 7)), Difference("discovery", "/version", [])]
    )
    assert text.startswith("# Kubernetes 1.99.0 beside 1.98.0\n")
    assert text.index("## Discovery: 1") < text.index("## Watch: 1")
    assert "- [ ] `watch.a #1`, `watch.a #2`, `watch.a #3`, `watch.a #4`, and 2 more\n" in text
    assert text.count("body.items[].message") == 1


def test_a_list_without_differences_says_so() -> None:
    assert "Nothing differs." in differences.page("x", [])


def test_an_unknown_topic_is_listed_after_the_known_ones() -> None:
    text = differences.page("x", [Difference("mail", "a", []), Difference("flags", "b", [])])
    assert text.index("## Flags: 1") < text.index("## Mail: 1")
