"""The rules and dashboards of monitoring/ are right by themselves, and in step with docs/monitoring.md and the chart."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from typing import Any

import pytest
import yaml

from charts import generate
from monitoring import dashboards
from tests.e2e.controlplane import binaries
from tests.fixtures import debian
from tests.structure.test_pages import anchors

PROJECT = pathlib.Path(__file__).resolve().parents[2]
MONITORING = PROJECT / "monitoring"
PAGE = PROJECT / "docs" / "monitoring.md"
RULES = [rule for group in yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
SCENARIOS = yaml.safe_load((MONITORING / "rules_test.yaml").read_text())["tests"]
FIRED = re.compile(r'alertname="(\w+)"')


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(debian.program("promtool", "prometheus")), *words]
    return subprocess.run(command, cwd=MONITORING, capture_output=True, text=True, check=False)


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "rules.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"SUCCESS: {len(RULES)} rules found" in done.stdout


def test_each_scenario_causes_the_alerts_that_it_names_and_no_others() -> None:
    done = promtool("test", "rules", "rules_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def outcomes() -> list[list[str]]:
    """The labels of firing alerts at each time that a scenario looks at."""
    return [
        [sample["labels"] for sample in look["exp_samples"]] for each in SCENARIOS for look in each["promql_expr_test"]
    ]


def test_each_alert_fires_in_a_scenario_and_is_silent_before() -> None:
    fired = {name for labels in outcomes() for each in labels for name in FIRED.findall(each)}
    assert fired == set(ALERTS)
    for each in SCENARIOS:
        looks = [look["exp_samples"] for look in each["promql_expr_test"]]
        assert [] in looks or "ends within a day" in each["name"], each["name"]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_happened_what_to_do_and_where_to_read_more(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/monitoring.md#{name.lower()}"
    text = rule["annotations"]["summary"] + rule["annotations"]["description"]
    used = set(re.findall(r"\$labels\.(\w+)", text))
    for labels in (each for looks in outcomes() for each in looks if f'"{name}"' in each):
        assert used <= set(re.findall(r'(\w+)="', labels)), "a label that the alert lacks is an empty text"


def test_the_page_describes_each_alert_and_no_other() -> None:
    described = re.findall(r"^### (Sluice\w+)$", PAGE.read_text(), re.MULTILINE)
    assert described == list(ALERTS)
    assert {name.lower() for name in ALERTS} <= anchors(PAGE)
    sections = re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    for section in sections:
        name = section.partition("\n")[0]
        assert f"**{ALERTS[name]['labels']['severity']}**" in section, name


def names_in(expression: str) -> set[str]:
    """The names of metrics in an expression, those of recording rules included."""
    return set(
        re.findall(
            r"\b(?:sluice|apiserver|process|kubernetes|authentication|authorization|rest_client)[\w:]*", expression
        )
    )


def known_names(text: str) -> set[Any]:
    return set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))


def test_rules_read_metrics_that_the_server_has() -> None:
    page = known_names((PROJECT / "docs" / "metrics.md").read_text())
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    for rule in RULES:
        expression = re.sub(r'"[^"]*"', "", rule["expr"])
        unknown = {
            name
            for name in names_in(expression) - recorded - page
            if re.sub(r"_(bucket|count|sum)$", "", name) not in page
        }
        assert unknown == set(), rule


def test_dashboards_are_what_their_declaration_makes() -> None:
    found = {file.name: file.read_text() for file in dashboards.FOLDER.glob("*.json")}
    assert found == dashboards.files(), "python -m monitoring.dashboards"


def test_dashboards_read_metrics_that_the_server_has() -> None:
    page = known_names((PROJECT / "docs" / "metrics.md").read_text()) | {rule.get("record") for rule in RULES}
    panels = [panel for _, board in dashboards.BOARDS.values() for panel in board]
    for panel in panels:
        for query, _ in panel.queries:
            names = names_in(re.sub(r'"[^"]*"', "", query))
            assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in names} <= page, panel


def test_the_component_is_what_kustomize_accepts_and_holds_the_rules_and_dashboards(tmp_path: pathlib.Path) -> None:
    assert (MONITORING / "prometheusrule.yaml").read_text() == generate.prometheus_rule(), "make chart"
    at = os.path.relpath(MONITORING, tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"components": [at]}))
    done = subprocess.run([binaries.kubectl(), "kustomize", tmp_path], capture_output=True, text=True, check=True)
    objects = {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(done.stdout)}
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text())
    assert objects["PrometheusRule", "sluice"]["spec"] == rules
    assert objects["ConfigMap", "sluice-dashboards"]["data"] == dashboards.files()
    role = objects["ClusterRole", "sluice-metrics"]
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    monitor = objects["ServiceMonitor", "sluice"]["spec"]
    assert (
        monitor["endpoints"][0]["authorization"]["credentials"]["name"]
        == objects["Secret", "sluice-metrics"]["metadata"]["name"]
    )
