"""Evaluate expressions about changes: compile once, evaluate often, never hold the event loop for long.

* scope: expressions that may use the same variables, those of a policy among them; compiled together, in a thread
* evaluate: the results of some of them for one change, within a cost budget

Long work moves to a thread, which stops when nobody waits for it any more. An expression that asks the authorizer stops there, and is
evaluated again once the answer is known. Upstream: kubernetes/apiserver
`pkg/admission/plugin/cel/{compile,composition,condition,activation}.go`, `pkg/apis/cel/config.go`.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apiserver.admission.core.variables import Asks, Variables, asked_of
from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.releases import NEWEST, Release
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError
from apiserver.runtime import workers
from apiserver.runtime.workers import EXPRESSIONS, POLICIES
from kubecel.check.declarations import Shape
from kubecel.check.environment import Environment
from kubecel.kubernetes import environments
from kubecel.kubernetes.composition import Composed, shape_of
from kubecel.kubernetes.environments import COST_LIMIT, Addition
from kubecel.libraries.authorizer import Answer
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values.errors import CostExceeded, EvaluationError, Overspent, Panic, ProgramError
from kubecel.values.types import Type

CONDITIONS_BUDGET = 2_500_000
"""The cost budget of all match conditions of a webhook or policy for one change."""
POLICY_BUDGET = 10_000_000
"""The cost budget of a policy's validations for one change, binding and parameter."""
LOOP_SECONDS = 0.003
"""How long expressions are evaluated on the event loop, and how much of that may pass before other tasks get their turn."""
LONG_CHARACTERS = 4096
"""Characters of all expressions of a scope together: longer ones are evaluated in a thread."""

Decide = Callable[[User, RequestInfo], Awaitable[Decision]]


class Unevaluated(Exception):
    """None of the expressions could be evaluated. The text is upstream's."""


class OutOfBudget(Unevaluated):
    """The expressions of one evaluation exceed the cost budget."""

    def __init__(self) -> None:
        super().__init__("validation failed due to running out of cost budget, no further validation rules will be run")


class _Unfinished(Exception):
    """The rest takes too long for the event loop. Not an error of the language."""


class Result(NamedTuple):
    """The result of one expression: its value, or the error in `problem`. `seconds` is how long it took."""

    value: Any = None
    problem: str = ""
    seconds: float = 0.0


NOTHING = Result()
"""The result of a missing expression."""


class Expression:
    """An expression whose type must be in `results`, if that is not empty. `at` is its path in the configuration.

    After its scope is compiled, it has a `program` and the type `output`, or a `problem`.
    """

    __slots__ = ("at", "authorizes", "output", "problem", "program", "results", "text")

    def __init__(self, text: str, results: Sequence[Type], *, authorizes: bool, at: str = "") -> None:
        self.text = text
        self.at = at
        self.results = results
        self.authorizes = authorizes
        self.program: Program | None = None
        self.output: Type | None = None
        self.problem = ""

    def compile(self, environment: Environment) -> None:
        try:
            checked = environment.compile(self.text)
        except CompileError as e:
            self.problem = f"compilation failed: {e}"
            return
        if self.results and checked.output not in self.results:
            self.problem = f"must evaluate to {_either(self.results)} but got {checked.output}"
            return
        try:
            self.program = Program(checked, environment, cost_limit=COST_LIMIT)
        except (ProgramError, Panic) as e:
            self.problem = f"program instantiation failed: {e}"
            return
        self.output = checked.output


def _either(types: Sequence[Type]) -> str:
    return str(types[0]) if len(types) == 1 else f"one of [{' '.join(map(str, types))}]"


class Scope:
    """Expressions that may use the same variables: `params` if set, and those of `additions`.

    `variables` are those of a policy, each a name and an expression that may use the ones before it. None: `variables` does not exist.
    They mean what they mean in this release.
    """

    def __init__(
        self,
        *,
        params: bool = False,
        variables: Iterable[tuple[str, str]] | None = None,
        additions: Sequence[Addition] = (),
        release: Release = NEWEST,
    ) -> None:
        self.compiled = False
        self._release = release
        self.names: frozenset[str] = frozenset()
        self.programs: dict[str, Program | str] = {}
        self.types: dict[str, Shape] = {}
        self.composes = variables is not None
        self._params = params
        self._additions = additions
        self._variables = [
            (name, Expression(text, (), authorizes=True, at=f"spec.variables[{i}].expression"))
            for i, (name, text) in enumerate(variables or ())
        ]
        self._expressions: list[Expression] = []
        self._characters = sum(len(variable.text) for _, variable in self._variables)

    @property
    def small(self) -> bool:
        """Whether evaluation is quick except for loops and large values."""
        return self._characters <= LONG_CHARACTERS

    def expression(self, text: str, *results: Type, authorizes: bool = True, at: str = "") -> Expression:
        """Add an expression. `authorizes`: it may ask the authorizer. `at`: its path in the configuration."""
        made = Expression(text, results, authorizes=authorizes, at=at)
        self._expressions.append(made)
        self._characters += len(text)
        return made

    async def ready(self) -> None:
        """Wait until the scope is compiled."""
        if not self.compiled:
            await EXPRESSIONS.once(self, self.compile)

    def problems(self) -> list[tuple[str, str]]:
        """Return the texts that did not compile, with their errors."""
        return [(expression.text, expression.problem) for expression in self._all if expression.problem]

    def errors(self) -> Iterator[FieldError]:
        """Yield the compile errors with their paths, except for missing expressions."""
        for expression in self._all:
            if expression.problem and expression.text:
                yield fieldpath.invalid(expression.at, expression.text, expression.problem)

    @property
    def _all(self) -> Iterable[Expression]:
        return (*(variable for _, variable in self._variables), *self._expressions)

    def compile(self) -> None:
        """Compile all expressions, in a thread. The error of one is reported when it is used."""
        types = self.types
        for name, variable in self._variables:
            variable.compile(self._environment(types, authorizes=True))
            types[name] = shape_of(variable.output)
            self.programs[name] = variable.program or variable.problem
        known = {authorizes: self._environment(types, authorizes=authorizes) for authorizes in (False, True)}
        for expression in self._expressions:
            expression.compile(known[expression.authorizes])
        self.names = frozenset().union(*(each.program.asks for each in self._all if each.program is not None))
        self.compiled = True

    def _environment(self, types: Mapping[str, Shape], *, authorizes: bool) -> Environment:
        if not self.composes and not self._additions:
            return _plain(self._release, params=self._params, authorizes=authorizes)
        variables = environments.composed(dict(types)) if self.composes else None
        found = environments.admission(self._release, params=self._params, authorizes=authorizes, variables=variables)
        return found.extend(*self._additions).stored


@functools.cache
def _plain(release: Release, *, params: bool, authorizes: bool) -> Environment:
    return environments.admission(release, params=params, authorizes=authorizes).stored


class Expressions:
    """Evaluates the expressions of a release. `decide` authorizes a user's request."""

    def __init__(self, decide: Decide, release: Release = NEWEST) -> None:
        self._decide = decide
        self.release = release
        self._held = 0.0

    def scope(
        self,
        *,
        params: bool = False,
        variables: Iterable[tuple[str, str]] | None = None,
        additions: Sequence[Addition] = (),
    ) -> Scope:
        """Return a new scope of this release."""
        return Scope(params=params, variables=variables, additions=additions, release=self.release)

    async def evaluate(
        self, scope: Scope, expressions: Sequence[Expression | None], variables: Variables, *, budget: int
    ) -> tuple[list[Result], int]:
        """Return a result for each expression, in order, and the rest of the budget. Raises Unevaluated.

        The scope's `variables` are evaluated once for all expressions, each when it is first used.
        """
        if not scope.compiled:
            await scope.ready()
        try:
            await variables.prepare(scope.names)
        except ValueError as e:  # raw JSON may have numbers that no value of an expression can have
            raise Unevaluated(str(e)) from None
        run = _Run(scope, expressions, variables, budget)
        quick = scope.small and variables.small
        while True:
            try:
                if quick:
                    await self._on_loop(run)
                else:
                    await POLICIES.run_patiently(run.go, _checkpoint)
            except Asks as e:
                asked = e.attributes
                variables.answers.known[asked] = await self._answer(*asked_of(variables.attributes.user, asked))
            except _Unfinished:
                quick = False
            else:
                return run.results, run.left

    async def _on_loop(self, run: _Run) -> None:
        if self._held > LOOP_SECONDS:
            self._held = 0.0
            await asyncio.sleep(0)
        started = time.perf_counter()
        until = started + LOOP_SECONDS
        try:
            run.go(lambda: _stop(until))
        finally:
            self._held += time.perf_counter() - started

    async def _answer(self, user: User, info: RequestInfo) -> Answer:
        try:
            decision = await self._decide(user, info)
        except ClusterError as e:
            return Answer(allowed=False, error=str(e))
        return Answer(allowed=decision.allowed, reason=decision.reason)


def _stop(until: float) -> bool:
    if time.perf_counter() > until:
        raise _Unfinished
    return False


def _checkpoint() -> bool:
    workers.checkpoint()
    return False


class _Run:
    """One evaluation. It resumes where it stopped: at the unfinished expression, with the known variables."""

    def __init__(
        self, scope: Scope, expressions: Sequence[Expression | None], variables: Variables, budget: int
    ) -> None:
        self.results: list[Result] = []
        self.left = budget
        self._expressions = expressions
        self._composed = Composed(scope.programs, variables.values) if scope.composes else None
        self._bindings = variables.values if self._composed is None else self._composed.bindings

    def go(self, cancelled: Callable[[], bool]) -> None:
        """Evaluate to the end, unless an expression asks the authorizer or `cancelled` raises an error. Raises OutOfBudget."""
        if self._composed is not None:
            self._composed.cancelled = cancelled
        while len(self.results) < len(self._expressions):
            expression = self._expressions[len(self.results)]
            self.results.append(NOTHING if expression is None else self._result(expression, cancelled))

    def _result(self, expression: Expression, cancelled: Callable[[], bool]) -> Result:
        if expression.program is None:
            return Result(problem=f"compilation error: {expression.problem}")
        started = time.perf_counter()
        value, problem = None, ""
        if self._composed is not None:
            self._composed.budget = self.left
        cancelled()
        try:
            value, cost = expression.program.evaluate(self._bindings, cancelled=cancelled)
        except (EvaluationError, CostExceeded) as e:
            cost, problem = e.cost, f"expression '{expression.text}' resulted in error: {e}"
        except Overspent:
            raise OutOfBudget from None
        self._pay(cost)
        return Result(value, problem, time.perf_counter() - started)

    def _pay(self, cost: int) -> None:
        if self._composed is not None:
            self.left -= self._composed.take_cost()
        self.left -= cost
        if self.left < 0:
            raise OutOfBudget
