from bench import aggregated, bounds, results
from bench.results import OURS, THROUGH, Results
from bench.steps import Run

AT_THE_END = {"memory with 10000 slices", "memory with 30000 slices", "start with 100000 slices"} | {
    "CREATE 128 devices c16",
    "APPLY 128 devices c16",
}
"""Figures of the whole program, which are no steps."""


def test_every_bound_is_one_of_a_workload_that_is_run() -> None:
    run = Run(slices=10_000, quick=False)
    names = {step.name for step in (*run.filling(), *run.steps())} | AT_THE_END
    assert {bound.workload for bound in bounds.BOUNDS} <= names
    assert {bound.figure for bound in bounds.BOUNDS} <= bounds.UNITS.keys()


def test_each_bound_through_kube_apiserver_is_one_of_a_workload() -> None:
    names = {step.name for step in Run(slices=10_000, quick=False).aggregated()}
    assert {bound.workload for bound in bounds.AGGREGATED} <= names
    assert {bound.figure for bound in bounds.AGGREGATED} <= bounds.UNITS.keys()


def test_rounds_begin_with_each_way_in_turn() -> None:
    ways = ["own group", "through", "direct"]
    rounds = [aggregated.rotated(ways, turn) for turn in range(4)]
    assert [each[0] for each in rounds] == [*ways, "own group"]
    assert all(sorted(each) == sorted(ways) for each in rounds)


def test_figure_below_its_least_value_is_missed() -> None:
    found = Results()
    found.add("reads", "GET c16", THROUGH, {"times": 1.19, "of_direct": 1.31})
    found.add("writes", "PUT c16", THROUGH, {"times": 2.0, "of_direct": 1.3})
    missed = [(v.bound.workload, v.bound.figure) for v in bounds.judge(found, bounds.AGGREGATED) if v.missed]
    assert missed == [("GET c16", "times"), ("GET c16", "of_direct")]


def test_figure_above_its_bound_is_missed_and_an_unmeasured_one_is_not() -> None:
    found = Results()
    found.add("lists", "LIST gzip c1", OURS, {"cpu_ms": 12.001})
    found.add("lists", "LIST Table c1", OURS, {"cpu_ms": 15})
    verdicts = {v.bound.workload: v for v in bounds.judge(found) if v.bound.figure == "cpu_ms"}
    assert verdicts["LIST gzip c1"].missed
    assert verdicts["LIST gzip c1"].line().startswith("MISSED")
    assert verdicts["LIST Table c1"].line() == "met          LIST Table c1: 15, bound 15 ms of CPU"
    assert verdicts["walk by 500"].line().startswith("not measured")


def test_a_file_of_results_is_read_as_it_was_written() -> None:
    found = Results({"date": "2026-01-01"})
    found.add("lists", "LIST gzip c1", OURS, {"cpu_ms": 12.0})
    assert results.parse(found.text()) == found
