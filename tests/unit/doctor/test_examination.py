"""Checks end in time, findings of a check that fails are kept, and the page and the document show them."""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
from typing import Any

import pytest

from apiserver import __main__ as program
from apiserver.cluster.errors import ClusterError, Refused
from apiserver.doctor import examination, report
from apiserver.doctor.checks import CHECKS
from apiserver.doctor.checks.server import readiness
from apiserver.doctor.codes import CODES
from apiserver.doctor.findings import Answers, Check, Finding, Result, State, found, good
from apiserver.doctor.installation import Installation
from tests.unit.doctor.recorded import Recorded

PROJECT = pathlib.Path(__file__).resolve().parents[3]


async def front(_: Installation) -> Answers:
    yield good("fine")


def check(name: str, run: Any) -> Check:
    return Check(name, "whether", run, cluster=False, aggregated=False)


async def examined(run: Any) -> list[Finding]:
    """The findings of one check behind a healthy first one."""
    installation = Recorded({})
    results = await examination.examine(installation, seconds=0.2, checks=[check("front", front), check("one", run)])
    return [finding for result in results if result.check == "one" for finding in result.findings]


async def test_check_that_hangs_ends_in_time_and_keeps_its_findings() -> None:
    async def hangs(_: Installation) -> Answers:
        yield good("first")
        await asyncio.Event().wait()

    assert [finding.code for finding in await examined(hangs)] == ["ok", "timeout"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("pods is forbidden", code=403), "not-permitted"),
        (Refused("no", code=500), "no-answer"),
        (ClusterError("connection refused"), "no-answer"),
    ],
)
async def test_question_that_fails_is_a_finding(error: ClusterError, code: str) -> None:
    async def fails(_: Installation) -> Answers:
        yield good("first")
        raise error

    assert [finding.code for finding in await examined(fails)] == ["ok", code]


RESULTS = [
    Result("service", (found("service-missing", "there is no Service a/b", "kubectl apply -f service.yaml"),), 0.01),
    Result("clock", (good("the clocks agree"),), 0.02),
]


def test_page_has_a_line_for_each_finding_and_the_command_below_it() -> None:
    assert report.page(RESULTS, "here", 80).splitlines()[2:] == [
        "FAIL service         there is no Service a/b [service-missing]",
        "     do: kubectl apply -f service.yaml",
        "OK   clock           the clocks agree",
        "",
        "something is broken: 1 FAIL, 1 OK",
    ]


def test_document_has_the_form_of_the_page_in_docs() -> None:
    found_ = json.loads(report.document(RESULTS, "here"))
    assert found_["form"] == report.FORM
    assert found_["state"] == "fail"
    assert found_["checks"][0] == {
        "check": "service",
        "seconds": 0.01,
        "findings": [
            {
                "state": "fail",
                "code": "service-missing",
                "text": "there is no Service a/b",
                "do": "kubectl apply -f service.yaml",
            }
        ],
    }


@pytest.mark.parametrize(("state", "code"), [(State.OK, 0), (State.SKIP, 0), (State.WARN, 0), (State.FAIL, 1)])
def test_exit_code_is_one_only_for_findings_that_break(state: State, code: int) -> None:
    assert report.exit_code([Result("one", (Finding(state, "ok", ""),), 0)]) == code


def test_page_about_doctor_has_every_code_with_its_state_and_meaning() -> None:
    text = (PROJECT / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| `([a-z][a-z-]*)` \| (ok|skip|warn|fail) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(code, each.state, each.meaning) for code, each in CODES.items()]
    assert [check.name for check in CHECKS if f"| `{check.name}` | {check.asks} |" not in text] == []


def test_every_code_is_used() -> None:
    sources = "".join(
        file.read_text() for file in (PROJECT / "apiserver" / "doctor").rglob("*.py") if file.name != "codes.py"
    )
    assert [code for code in CODES if f'"{code}"' not in sources] == []


def test_failing_health_checks_are_named_with_their_reasons() -> None:
    page = "[+]ping ok\n[-]informer-sync failed: namespaces is forbidden\n[-]store failed, not counted: no store\nreadyz check failed\n"
    assert [(finding.code, finding.text.rpartition(": ")[2]) for finding in readiness(page, "logs")] == [
        ("server-not-ready", "namespaces is forbidden"),
        ("server-store", "no store"),
    ]


@pytest.mark.usefixtures("configured_process")
def test_doctor_exits_with_two_without_a_kubeconfig(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["doctor"], {}) == 2
    assert "no kubeconfig: name one with --kubeconfig" in capsys.readouterr().err


@pytest.mark.usefixtures("configured_process")
def test_doctor_exits_with_two_for_a_context_that_is_missing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_text("{current-context: a, contexts: [], clusters: [], users: []}")
    assert program.run(["doctor", "--context=nowhere"], {"KUBECONFIG": str(file)}) == 2
    assert "it has no context 'nowhere'" in capsys.readouterr().err
