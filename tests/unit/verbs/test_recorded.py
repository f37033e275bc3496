"""Stored objects that a recorder of requests receives."""

from __future__ import annotations

from apiserver.verbs import recorded


def test_raw_json_stays_as_it_was_sent_without_managed_fields() -> None:
    spec = rb'"spec":{"a":"\ud800\\\u0000","b":"\ud83d\ude00"}'
    value = rb'{"metadata":{"name":"a","managedFields":[{"manager":"m"}]},%b}' % spec + b'\n["{}"]'
    assert recorded.bare(value) == rb'{"metadata":{"name":"a"},%b}' % spec + b'\n["{}"]'
