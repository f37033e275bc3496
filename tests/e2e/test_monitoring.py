"""The rules and dashboards of monitoring/ on a real Prometheus that scrapes a loaded server."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from monitoring import dashboards, pictures
from tests.fixtures import debian
from tests.fixtures.processes import free_port, start
from tests.fixtures.server import DevServer, dev_server

PROJECT = pathlib.Path(__file__).resolve().parents[2]
RULES = PROJECT / "monitoring" / "rules.yaml"
V1 = "/apis/resource.sluice.dev/v1"
SECONDS = 240
WITHOUT_A_CLUSTER = {
    "aggregator_unavailable_apiservice",
    "apiserver_delegated_authn_request_total",
    "apiserver_delegated_authz_request_total",
    "kube_pod_container_resource_limits",
    "sluice_cluster_copy_age_seconds",
    "sluice_crds",
    "sluice_store_sentinels",
}
"""Metrics of kube-apiserver, of kube-state-metrics, and of parts that `sluice dev` does not have."""
WHEN_SOMETHING_FAILS = {
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_audit_error_total",
    "apiserver_conversion_webhook_request_total",
    "sluice_store_failovers_total",
    "sluice_task_failures_total",
}
"""Counters that appear with their first event."""
LATE = {"sluice_consistency_checks_total"}
"""Counters of work that is due every five minutes."""


class Prometheus:
    """A running Prometheus with the project's rules."""

    def __init__(self, folder: pathlib.Path, server: DevServer) -> None:
        config = yaml.safe_load(server.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        for name, text in (
            ("ca.crt", cluster["certificate-authority-data"]),
            ("tls.crt", user["client-certificate-data"]),
            ("tls.key", user["client-key-data"]),
        ):
            (folder / name).write_bytes(base64.b64decode(text))
        tls = {"ca_file": f"{folder}/ca.crt", "cert_file": f"{folder}/tls.crt", "key_file": f"{folder}/tls.key"}
        job = {
            "job_name": "sluice",
            "scheme": "https",
            "tls_config": tls,
            "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}],
        }
        times = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump({"global": times, "rule_files": [str(RULES)], "scrape_configs": [job]}))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / "prometheus.log"
        command = [str(debian.program("prometheus", "prometheus")), f"--config.file={file}"]
        command += [
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        with self.log.open("w") as log:
            self.process = start(command, stdout=log, stderr=log)

    def ask(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def until(self, *expressions: str) -> None:
        """Wait until each expression returns data."""
        end, missing = time.monotonic() + SECONDS, list(expressions)
        while missing:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < end, missing
            time.sleep(0.5)
            try:
                missing = [expression for expression in missing if not self.query(expression)]
            except OSError:
                continue  # it has just been started


def load(server: DevServer, stop: threading.Event) -> None:
    """Write, read, list and watch until `stop`."""
    for number in range(10_000):
        if stop.is_set():
            return
        body = {"metadata": {"name": f"class-{number}"}, "spec": {}}
        assert server.request("POST", f"{V1}/deviceclasses", body).status == 201
        server.request("GET", f"{V1}/deviceclasses/class-{number}")
        server.request("GET", f"{V1}/deviceclasses/missing")
        server.request("GET", f"{V1}/deviceclasses", headers={"Accept-Encoding": "gzip"})
        server.request("DELETE", f"{V1}/deviceclasses/class-{number - 5}")
        server.request("GET", f"{V1}/deviceclasses?watch=true&timeoutSeconds=1&resourceVersion=0")
        server.request("GET", "/readyz")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    debian.program("prometheus", "prometheus")
    folder = tmp_path_factory.mktemp("monitoring")
    with dev_server(folder) as server:
        stop = threading.Event()
        loading = threading.Thread(target=load, args=(server, stop))
        made = Prometheus(folder, server)
        try:
            loading.start()
            made.until('up{job="sluice"} == 1')
            yield made
        finally:
            stop.set()
            made.process.kill()
            made.process.wait()
            loading.join()


def shown(query: str) -> str:
    """The query as Grafana sends it."""
    expression = dashboards.expression(query)
    return expression.replace("$namespace", ".*").replace("$__rate_interval", "1m")


def test_every_panel_shows_data_or_is_said_to_be_quiet(prometheus: Prometheus) -> None:
    panels = [panel for _, board in dashboards.BOARDS.values() for panel in board]
    prometheus.until(*(shown(query) for panel in panels if not panel.quiet for query, _ in panel.queries))
    for panel in panels:
        for query, _ in panel.queries:
            prometheus.query(shown(query))  # an error of the query raises


def test_every_metric_of_the_rules_exists_and_each_rule_can_be_evaluated(prometheus: Prometheus) -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    texts = [re.sub(r'"[^"]*"', "", rule["expr"]) for rule in rules]
    names = {name for text in texts for name in re.findall(r"(?<![:\w])(?:\w+_\w+|up)(?=\{)", text)}
    names |= {rule["record"] for rule in rules if "record" in rule}
    assert len(names) > 30
    absent = WITHOUT_A_CLUSTER | WHEN_SOMETHING_FAILS | LATE
    prometheus.until(*(f"count({name})" for name in sorted(names - absent)))
    evaluated = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {
        (rule["name"], rule["health"], rule.get("lastError")) for rule in evaluated if rule["health"] != "ok"
    } == set()
    assert len(evaluated) == len(rules)
    firing = {
        alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"
    }
    assert firing & {"SluiceDown", "SluiceStoreUnreachable", "SluiceStoreNotFit", "SluiceCertificateExpires"} == set()


DRAWN = {
    "requests": ("overview", "Requests by code"),
    "latency": ("overview", "Latency, 99 of 100"),
    "events": ("watches", "Events sent"),
    "commits": ("store", "Writes, 99 of 100"),
}
"""The panels that docs/monitoring.md shows, by the names of their pictures."""


def drawn(prometheus: Prometheus, panel: dashboards.Panel) -> str:
    """Draw the last minute of a panel, with rates over 15 s."""
    now, series = time.time(), dict[str, list[tuple[float, float]]]()
    for query, legend in panel.queries:
        found = prometheus.ask(
            "query_range", query=shown(query).replace("[1m]", "[15s]"), start=f"{now - 60}", end=f"{now}", step="1"
        )
        for each in found["result"]:
            name = legend
            for label, value in each["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            series[name] = [(at, float(value)) for at, value in each["values"] if value != "NaN"]
    return pictures.svg(panel.title, panel.unit, {name: line for name, line in series.items() if line})


def test_panels_can_be_drawn_for_the_docs(prometheus: Prometheus, tmp_path: pathlib.Path) -> None:
    """With SLUICE_PICTURES=docs/pictures it writes the pictures of docs/monitoring.md."""
    folder = tmp_path
    if chosen := os.environ.get("SLUICE_PICTURES"):
        folder = pathlib.Path(chosen)
        prometheus.until("count_over_time(up[1m]) > 55")
    folder.mkdir(exist_ok=True)
    for name, (board, title) in DRAWN.items():
        [panel] = [panel for panel in dashboards.BOARDS[board][1] if panel.title == title]
        prometheus.until(*(shown(query) for query, _ in panel.queries))
        (folder / f"monitoring-{name}.svg").write_text(drawn(prometheus, panel))
        lines = ET.parse(folder / f"monitoring-{name}.svg").findall("{http://www.w3.org/2000/svg}polyline")
        assert lines, title
