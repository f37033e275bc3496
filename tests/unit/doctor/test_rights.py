"""The rules that doctor asks for are those of the manifests, with their lines."""

from __future__ import annotations

import pathlib
from typing import Any

import yaml

from apiserver.doctor.checks.rights import GRANTED, Rule

BASE = pathlib.Path(__file__).resolve().parents[3] / "manifests" / "base"
READER = "clusterrole-reader.yaml"


def test_rules_of_the_reader_have_the_lines_groups_resources_and_verbs_of_the_manifest() -> None:
    text = (BASE / READER).read_text()
    [document] = yaml.compose_all(text)
    assert isinstance(document, yaml.MappingNode)
    [listed] = [value for key, value in document.value if key.value == "rules"]
    lines = [rule.start_mark.line + 1 for rule in listed.value]
    rules: list[dict[str, Any]] = yaml.safe_load(text)["rules"]
    written = [
        (line, tuple(rule["apiGroups"]), tuple(rule["resources"]), tuple(rule["verbs"]))
        for line, rule in zip(lines, rules, strict=True)
    ]
    asked = [(rule.line, (rule.group,), rule.resources, rule.verbs) for rule in GRANTED if rule.file == READER]
    assert asked == written


def test_rules_of_roles_of_kubernetes_have_the_line_where_the_binding_names_the_role() -> None:
    for rule in GRANTED:
        if rule.file != READER:
            lines = (BASE / rule.file).read_text().splitlines()
            assert lines[rule.line - 1] == "roleRef:", rule


def test_each_binding_of_the_service_account_is_asked_for() -> None:
    """But those whose rules only the operator knows."""
    bindings = {file.name for file in BASE.glob("*binding-*.yaml")} - {"clusterrolebinding-params.yaml"}
    assert {rule.binding for rule in GRANTED} == bindings


def test_a_rule_asks_for_each_verb_of_each_resource() -> None:
    rule = Rule(
        file="f", line=1, binding="b", group="", resources=("a", "b/status"), verbs=("get", "list"), needs="", name="x"
    )
    assert [dict(attributes) for attributes in rule.asked()] == [
        {"resource": "a", "verb": "get", "name": "x"},
        {"resource": "a", "verb": "list", "name": "x"},
        {"resource": "b", "subresource": "status", "verb": "get", "name": "x"},
        {"resource": "b", "subresource": "status", "verb": "list", "name": "x"},
    ]
