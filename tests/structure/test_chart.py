"""The chart of charts/sluice is what charts/generate.py makes of manifests/.

That Helm makes of it what kustomize makes of them, and that it can be installed, is tested with the real Helm on a node (tests/e2e/node).
"""

from __future__ import annotations

import json
import re

import pytest
import yaml

from charts import generate
from charts.schema import SHAPES

WANTED = generate.files()


def test_the_chart_is_what_make_chart_writes() -> None:
    found = {
        str(file.relative_to(generate.CHART)): file.read_text() for file in generate.CHART.rglob("*") if file.is_file()
    }
    assert {name for name in WANTED.keys() | found.keys() if WANTED.get(name) != found.get(name)} == set(), "make chart"


def test_every_action_reads_a_value_that_has_a_default() -> None:
    values = yaml.safe_load(WANTED["values.yaml"])
    named = {word for text in WANTED.values() for word in generate.VALUE.findall(text)}
    for name in named:
        at = values
        for word in name.split("."):
            assert word in at, f".Values.{name}"
            at = at[word]
    assert len(named) > 10


def test_schema_knows_every_value_and_describes_what_is_commented() -> None:
    schema = json.loads(WANTED["values.schema.json"])
    described = []

    def compare(value: object, found: dict[str, object], path: tuple[str, ...]) -> None:
        described.extend([found["description"]] if "description" in found else [])
        if isinstance(value, dict) and ".".join(path) not in SHAPES:
            assert found["additionalProperties"] is False, path
            members = found["properties"]
            assert isinstance(members, dict)
            assert members.keys() - {"global"} == value.keys(), path
            for key, item in value.items():
                compare(item, members[key], (*path, key))

    compare(yaml.safe_load(WANTED["values.yaml"]), schema, ())
    comments = re.sub(r"\n *# ", " ", WANTED["values.yaml"].partition("\n\n")[2])
    for text in described:
        assert str(text) in comments
    assert len(described) > 20


def test_schema_has_no_shape_for_a_value_that_is_missing() -> None:
    values = yaml.safe_load(WANTED["values.yaml"])
    for path in SHAPES:
        at = values
        for word in path.split("."):
            assert word in at, path
            at = at[word]


def test_kinds_are_passed_to_the_server_and_to_the_store_job() -> None:
    told = {name for name, text in WANTED.items() if ".Values.kinds" in text and "name: SLUICE_KINDS" in text}
    assert told == {"templates/deployment-sluice.yaml", "templates/job-sluice-store-init.yaml"}


def test_definitions_are_mounted_in_the_server_and_in_the_store_job() -> None:
    told = {name for name, text in WANTED.items() if "- --crds=/etc/sluice/crds" in text}
    assert told == {"templates/deployment-sluice.yaml", "templates/job-sluice-store-init.yaml"}
    for name in told:
        assert WANTED[name].count("sluice-crds") == 3, "the mount, the volume, its ConfigMap"


def test_only_the_server_may_reach_more() -> None:
    told = {name for name, text in WANTED.items() if ".Values.extraEgress" in text}
    assert told == {"templates/networkpolicy-sluice.yaml"}


@pytest.mark.parametrize("name", [name for name in WANTED if name.startswith("templates/")])
def test_nothing_of_the_generator_is_left_in_a_template(name: str) -> None:
    text = WANTED[name]
    assert not set("«»") & set(text)
    opened = re.findall(r"\{\{- (?:if|with|range|define) ", text)
    assert text.count("{{- end }}") == len(opened)
    assert generate.NAMESPACE not in text.replace(f"namespace {generate.NAMESPACE}", "")
