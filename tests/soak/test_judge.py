"""The judge of a soak finds what grows, in made curves and in a process that leaks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.processes import start
from tests.soak import report, samples
from tests.soak.clients import Load, Seen
from tests.soak.judge import Curve, Unmeasured, judge
from tests.soak.run import Options, Result, curves, verdicts

MEMORY = Curve("resident", "MiB", 0.05, 4)
SECONDS = 1800.0
LEAKING = """
import os, sys
held = []
for line in sys.stdin:
    held.append((os.open("/dev/null", os.O_RDONLY), bytearray(os.urandom(1 << 20))))
    print(flush=True)
"""


def curve(value: Callable[[float], float]) -> list[tuple[float, float]]:
    return [(at, value(at)) for at in range(0, int(SECONDS), 5)]


@pytest.mark.parametrize(
    ("value", "rises"),
    [
        (lambda at: 300, False),
        (lambda at: min(at, 600) + 100, False),
        (lambda at: 300 + at % 300 / 10, False),
        (lambda at: 3000 if at == 1700 else 300, False),
        (lambda at: 300 - at / 60, False),
        (lambda at: 300 + at / 20, True),
        (lambda at: 300 + 50 * (at > 1250), True),
    ],
    ids=["constant", "fills", "sawtooth", "peak", "falls", "leaks", "steps"],
)
def test_judge_names_a_curve_that_rises_and_no_other(value: Callable[[float], float], rises: bool) -> None:
    assert judge(MEMORY, curve(value), SECONDS).rises == rises


def test_judge_leaves_a_curve_alone_while_it_has_to_fill() -> None:
    filling = Curve("log", "", 0, 0, fills=600)
    short = [(float(at), float(at)) for at in range(30)]
    assert judge(filling, short, 30).word == "still fills"
    assert judge(filling, curve(lambda at: at), SECONDS).word == "RISES"


def test_judge_refuses_a_curve_that_nobody_sampled() -> None:
    with pytest.raises(Unmeasured, match="resident: 0 and 0 samples"):
        judge(MEMORY, [], SECONDS)


@pytest.fixture
def leaking() -> Iterator[Callable[[], int]]:
    """Makes a process lose a descriptor and a mebibyte, and returns its id."""
    process: subprocess.Popen[str] = start(
        [sys.executable, "-c", LEAKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def leak() -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        return process.pid

    yield leak
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_judge_finds_the_descriptors_and_memory_that_a_process_loses(leaking: Callable[[], int]) -> None:
    taken = [(float(at), samples.process(leaking())) for at in range(90)]
    words = {
        kind.name: judge(kind, [(at * 20, figures[kind.name]) for at, figures in taken], SECONDS).word
        for kind in samples.PROCESS
    }
    assert words == {"resident": "RISES", "descriptors": "RISES", "threads": "flat"}


def test_results_show_which_curve_rises_in_table_and_picture() -> None:
    series = {name: curve(lambda at: 300) for name in curves()}
    series["steady: tasks"] = curve(lambda at: at)
    result = Result(Options(SECONDS, Load(), 1), SECONDS, series, verdicts=verdicts(series, SECONDS))
    result.counts.update(writes=1, events=1)
    result.writes = curve(lambda at: 100 * min(at, 1200) + 50 * max(at - 1200, 0))
    found = report.document(result)
    assert result.rising == ["steady: tasks"]
    assert not result.passed
    assert "| steady: tasks | 297.5 | 897.5 | 1,498 | 962.4 | RISES |" in report.table(found)
    assert found["writes_a_second"] == [100, 100, 50]
    assert "(100, 100, 50 a second in the three thirds)" in report.table(found)
    assert report.picture(found).count('<g class="rises">') == 1


def event(kind: str, version: int) -> bytes:
    return b'{"type":"%b","object":{"metadata":{"resourceVersion":"%d"}}}' % (kind.encode(), version)


def test_watcher_names_changes_that_are_missing_or_not_in_the_log() -> None:
    seen = Seen()
    seen.start(10)
    assert [seen.add(event("MODIFIED", version)) for version in (11, 13, 14)] == ["", "", ""]
    assert seen.compare([9, 10, 11, 13, 14]) == ""
    assert seen.compare([11, 12, 14]) == "from 10: 1 changes are missing [12], 1 are not in the log [13]"


def test_watcher_names_versions_that_do_not_rise() -> None:
    seen = Seen()
    seen.start(10)
    assert seen.add(event("BOOKMARK", 10)) == ""
    assert seen.add(event("MODIFIED", 10)) == "b'MODIFIED' at 10 after 10"
    assert seen.add(event("ADDED", 12)) == ""
    assert seen.add(event("BOOKMARK", 11)) == "b'BOOKMARK' at 11 after 12"
    assert seen.add(event("DELETED", 12)) == "b'DELETED\"' at 12 after 12"
    assert "ERROR" in seen.add(event("ERROR", 13))
