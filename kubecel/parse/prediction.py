"""Choose an alternative by the next tokens: ANTLR's adaptive prediction, as its Go runtime does it.

It follows all alternatives at once, token by token, until one is left or until more tokens cannot tell them apart. Then
the first one wins. It ignores the actual callers of the decision's rule. When several alternatives are left, upstream
repeats the prediction with the actual callers. With this grammar that decides nothing more. The only open question is
whether `-1` is a number or a negation, and both mean the same to every caller. Upstream: antlr4-go/antlr
`parser_atn_simulator.go`, `prediction_mode.go`, `prediction_context.go`, `atn_config_set.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubecel.parse.grammar import NETWORK, Role, State
from kubecel.parse.lexer import END
from kubecel.values.stackless import Task, run


class NoViableAlternative(Exception):
    """No alternative accepts the tokens. `ahead` is the number of the failing token, 1 for the next one."""

    def __init__(self, ahead: int) -> None:
        super().__init__(ahead)
        self.ahead = ahead


@dataclass(eq=False, slots=True)
class Callers:
    """A stack of return states, or several merged ones, each with the stack below.

    Equal stacks of one lookahead are one object.
    """

    ways: tuple[tuple[State | None, Callers | None], ...]

    @property
    def none(self) -> bool:
        """Return whether there is no caller, or none is known."""
        return self.ways[0][0] is None


NOBODY = Callers(((None, None),))


class _Config(NamedTuple):
    """A state that may have been reached, with its alternative and the callers of its rule."""

    state: State
    alternative: int
    callers: Callers
    # The rule of the decision ended, and its caller accepts any operator.
    loosely: bool = False
    # The rule of the decision ended, and its callers are unknown.
    outside: bool = False
    # Still in the rule of the decision, before any token.
    here: bool = False


@dataclass(eq=False, slots=True)
class _Step:
    """All configurations after some tokens, and the steps for further tokens; None for a token that does not fit."""

    configs: tuple[_Config, ...]
    onward: dict[str, _Step | None] = field(default_factory=dict)
    # The only alternative left, or the first of several that stay ambiguous; 0 while more tokens may decide.
    decided: int = 0

    def finished(self) -> int:
        """Return the first alternative that ended the rule of the decision, 0 for none."""
        return min((c.alternative for c in self.configs if c.outside or _at_end(c)), default=0)


def _at_end(config: _Config) -> bool:
    return config.state.role is Role.STOP and config.callers.ways[-1][0] is None


class Prediction:
    """Looks ahead in texts. Its cache serves all texts; the grammar limits it to some hundred steps."""

    def __init__(self) -> None:
        self._stacks: dict[tuple[tuple[State | None, Callers | None], ...], Callers] = {NOBODY.ways: NOBODY}
        self._starts: dict[tuple[State, int], _Step] = {}
        self._steps: dict[frozenset[_Config], _Step] = {}

    def predict(self, decision: State, ahead: Callable[[int], str], precedence: int) -> int:
        """Return the alternative that the next tokens belong to.

        `ahead` returns the kind of a token, 1 for the next one. `precedence` is the least precedence of operators.
        Raises NoViableAlternative.
        """
        key = decision, precedence if decision.operators else 0
        step = self._starts.get(key)
        if step is None:
            step = self._starts[key] = _Step(self._start(decision, precedence))
        at = 1
        while True:
            kind = ahead(at)
            try:
                onward = step.onward[kind]
            except KeyError:
                onward = step.onward[kind] = self._onward(step, kind)
            if onward is None:
                finished = step.finished()
                if finished:
                    return finished
                raise NoViableAlternative(at)
            if onward.decided:
                return onward.decided
            step = onward
            if kind != END:
                at += 1

    def _onward(self, step: _Step, kind: str) -> _Step | None:
        configs = self._reached(step.configs, kind)
        if not configs:
            return None
        key = frozenset(configs)
        if key in self._steps:
            return self._steps[key]
        alternatives = {config.alternative for config in configs}
        decided = min(alternatives) if len(alternatives) == 1 or _conflicting(configs) else 0
        return self._steps.setdefault(key, _Step(configs, decided=decided))

    def _called(self, state: State, callers: Callers) -> Callers:
        """Return the stack of a rule that returns to a state."""
        return self._stack(((state, callers),))

    def _stack(self, ways: tuple[tuple[State | None, Callers | None], ...]) -> Callers:
        return self._stacks.get(ways) or self._stacks.setdefault(ways, Callers(ways))

    def _start(self, decision: State, precedence: int) -> tuple[_Config, ...]:
        if not decision.operators:
            precedence = 0
        configs = tuple(
            config
            for alternative, way in enumerate(decision.ways, 1)
            for config in self._closure(
                [_Config(way, alternative, NOBODY, here=True)], rule=decision.rule, precedence=precedence
            )
        )
        return _without_repeated(configs) if decision.operators else configs

    def _reached(self, configs: Sequence[_Config], kind: str) -> tuple[_Config, ...]:
        """Return the configurations after a token."""
        matched: list[_Config] = []
        ended: list[_Config] = []
        for config in configs:
            token = config.state.token
            if token is None:
                ended.append(config)
            elif kind in token.kinds and config.state.then:
                matched.append(config._replace(state=config.state.then, here=False))
        if kind != END:
            one = len({config.alternative for config in matched}) == 1
            return tuple(matched) if one else self._closure(matched)
        stopped = (config for config in self._closure(matched) if config.state.role is Role.STOP)
        return (*stopped, *ended)

    def _closure(self, seeds: Iterable[_Config], *, rule: str = "", precedence: int = 0) -> tuple[_Config, ...]:
        """Return all states at tokens, and all rule ends, that need no token to reach."""
        found: dict[tuple[State, int], _Config] = {}
        seen: set[_Config] = set()
        pending = [*seeds]
        while pending:
            config = pending.pop()
            if config in seen:
                continue
            seen.add(config)
            state, alternative, callers, loosely, outside, here = config
            if state.token:
                self._add(found, config)
            elif state.call:
                start, called = NETWORK.starts[state.call.name], self._called(_then(state), callers)
                pending.append(_Config(start, alternative, called, loosely, outside))
            elif state.role is not Role.STOP:
                least = precedence if here else 0
                ways = state.ways[_loop_is_entered_below(config) :]
                pending.extend(
                    _Config(way, alternative, callers, loosely, outside, here)
                    for way in ways
                    if (way.precedence or least) >= least
                )
            elif not callers.none:
                pending.extend(
                    _Config(back, alternative, below, loosely=False, outside=outside, here=here)
                    for back, below in callers.ways
                    if back and below
                )
            elif not NETWORK.follows[state.rule]:
                self._add(found, config)
            else:
                pending.extend(
                    _Config(follow, alternative, callers, loosely or (loosest and state.rule == rule), outside=True)
                    for follow, loosest in NETWORK.follows[state.rule]
                )
        return tuple(found.values())

    def _add(self, found: dict[tuple[State, int], _Config], config: _Config) -> None:
        key = config.state, config.alternative
        other = found.get(key)
        if other is None:
            found[key] = config._replace(here=False)
            return
        callers: Callers = run(self._merged(other.callers, config.callers))
        found[key] = other._replace(
            callers=callers, loosely=other.loosely or config.loosely, outside=other.outside or config.outside
        )

    def _merged(self, one: Callers, other: Callers) -> Task:
        """Return two stacks merged into one."""
        if one is other:
            return one
        if one.none or other.none:
            return NOBODY
        ways = dict(one.ways)
        for back, below in other.ways:
            mine = ways.get(back)
            ways[back] = (yield self._merged(mine, below)) if mine and below else below
        return self._stack(tuple(sorted(ways.items(), key=_number)))


PREDICTION = Prediction()


def _number(way: tuple[State | None, Callers | None]) -> float:
    """Return the order of a return state; no caller comes last."""
    return way[0].number if way[0] else float("inf")


def _then(state: State) -> State:
    if state.then is None:
        raise TypeError("a state that calls a rule has no state that follows")
    return state.then


def _loop_is_entered_below(config: _Config) -> int:
    """Return how many ways to skip: the loop over operators is not entered where only its own rule called it.

    The caller enters it anyway (canDropLoopEntryEdgeInLeftRecursiveRule).
    """
    if not config.state.operators:
        return 0
    return int(all(back is not None and back.rule == config.state.rule for back, _ in config.callers.ways))


def _without_repeated(configs: tuple[_Config, ...]) -> tuple[_Config, ...]:
    """Remove configurations that both another operator and the end of the rule lead to: applyPrecedenceFilter."""
    entered = {config.state: config.callers for config in configs if config.alternative == 1}
    return tuple(
        config
        for config in configs
        if config.alternative == 1 or config.loosely or entered.get(config.state) is not config.callers
    )


def _subsets(configs: Iterable[_Config]) -> Iterable[set[int]]:
    """Return the sets of alternatives that meet in the same state with the same callers."""
    subsets: dict[tuple[State, Callers], set[int]] = {}
    for config in configs:
        subsets.setdefault((config.state, config.callers), set()).add(config.alternative)
    return subsets.values()


def _conflicting(configs: tuple[_Config, ...]) -> bool:
    """Return whether more tokens cannot tell the alternatives apart: hasSLLConflictTerminatingPrediction."""
    if all(config.state.role is Role.STOP for config in configs):
        return True
    if all(len(alternatives) == 1 for alternatives in _subsets(configs)):
        return False
    states: dict[State, set[int]] = {}
    for config in configs:
        states.setdefault(config.state, set()).add(config.alternative)
    return all(len(alternatives) > 1 for alternatives in states.values())
