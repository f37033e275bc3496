"""The grammar of the language, and the network of states that ANTLR generates from it.

`prediction` looks ahead in the network and `recognizer` follows it. Messages and order of syntax errors depend on its
shape.
Upstream: google/cel-go `parser/gen/CEL.g4`; antlr/antlr4 `ParserATNFactory`, `LL1Analyzer`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import count
from typing import NamedTuple

from kubecel.parse.lexer import BYTES, END, ESCAPED, FLOAT, IDENTIFIER, INT, STRING, UINT

# Stands in a set of possible tokens: the rule may end here.
EPSILON = "<EPSILON>"


class Token(NamedTuple):
    """One token of one or several kinds. A label keeps it in the tree."""

    kinds: tuple[str, ...]
    label: str = ""


class Rule(NamedTuple):
    """The call of a rule. `precedence` is the least precedence of its operators."""

    name: str
    label: str = ""
    precedence: int = 0


class Optional(NamedTuple):
    """Zero or one occurrence."""

    elements: tuple[Element, ...]


class Star(NamedTuple):
    """Zero or more occurrences."""

    elements: tuple[Element, ...]


class Plus(NamedTuple):
    """One or more occurrences."""

    elements: tuple[Element, ...]


class Alternative(NamedTuple):
    """One alternative of a rule, with the name of its node. An operator has a precedence."""

    name: str
    elements: tuple[Element, ...]
    precedence: int = 0


Element = Token | Rule | Optional | Star | Plus


class Definition(NamedTuple):
    """A rule: one of `alternatives`, then any number of `operators` whose left side is everything read before."""

    alternatives: tuple[Alternative, ...]
    operators: tuple[Alternative, ...] = ()


def _one(name: str, *elements: Element) -> Definition:
    return Definition((Alternative(name, elements),))


def _token(*kinds: str, label: str = "") -> Token:
    return Token(kinds, label)


_OPT = Optional((_token("?", label="opt"),))
_DOT = Optional((_token(".", label="dot"),))
_COMMA = Optional((_token(","),))


def _list(*elements: Element) -> tuple[Element, ...]:
    """Return elements that occur once or more, separated by commas."""
    return *elements, Star((_token(","), *elements))


# The order of alternatives is part of the language: the first one that fits wins.
GRAMMAR = {
    "start": _one("start", Rule("expr", "e"), _token(END)),
    "expr": _one(
        "expr",
        Rule("conditionalOr", "e"),
        Optional((_token("?", label="op"), Rule("conditionalOr", "e1"), _token(":"), Rule("expr", "e2"))),
    ),
    "conditionalOr": _one(
        "conditionalOr",
        Rule("conditionalAnd", "e"),
        Star((_token("||", label="ops"), Rule("conditionalAnd", "e1"))),
    ),
    "conditionalAnd": _one(
        "conditionalAnd", Rule("relation", "e"), Star((_token("&&", label="ops"), Rule("relation", "e1")))
    ),
    "relation": Definition(
        (Alternative("relation", (Rule("calc", "e"),)),),
        (
            Alternative(
                "relation",
                (_token("<", "<=", ">=", ">", "==", "!=", "in", label="op"), Rule("relation", "right", 2)),
                precedence=1,
            ),
        ),
    ),
    "calc": Definition(
        (Alternative("calc", (Rule("unary", "e"),)),),
        (
            Alternative("calc", (_token("*", "/", "%", label="op"), Rule("calc", "right", 3)), precedence=2),
            Alternative("calc", (_token("-", "+", label="op"), Rule("calc", "right", 2)), precedence=1),
        ),
    ),
    "unary": Definition(
        (
            Alternative("MemberExpr", (Rule("member", "e"),)),
            Alternative("LogicalNot", (Plus((_token("!", label="ops"),)), Rule("member", "e"))),
            Alternative("Negate", (Plus((_token("-", label="ops"),)), Rule("member", "e"))),
        )
    ),
    "member": Definition(
        (Alternative("PrimaryExpr", (Rule("primary", "e"),)),),
        (
            Alternative("Select", (_token(".", label="op"), _OPT, Rule("escapeIdent", "id")), precedence=3),
            Alternative(
                "MemberCall",
                (
                    _token(".", label="op"),
                    _token(IDENTIFIER, label="id"),
                    _token("(", label="open"),
                    Optional((Rule("exprList", "args"),)),
                    _token(")"),
                ),
                precedence=2,
            ),
            Alternative("Index", (_token("[", label="op"), _OPT, Rule("expr", "index"), _token("]")), precedence=1),
        ),
    ),
    "primary": Definition(
        (
            Alternative("Ident", (_DOT, _token(IDENTIFIER, label="id"))),
            Alternative(
                "GlobalCall",
                (
                    _DOT,
                    _token(IDENTIFIER, label="id"),
                    _token("(", label="op"),
                    Optional((Rule("exprList", "args"),)),
                    _token(")"),
                ),
            ),
            Alternative("Nested", (_token("("), Rule("expr", "e"), _token(")"))),
            Alternative(
                "CreateList", (_token("[", label="op"), Optional((Rule("listInit", "elems"),)), _COMMA, _token("]"))
            ),
            Alternative(
                "CreateStruct",
                (_token("{", label="op"), Optional((Rule("mapInitializerList", "entries"),)), _COMMA, _token("}")),
            ),
            Alternative(
                "CreateMessage",
                (
                    _DOT,
                    _token(IDENTIFIER, label="ids"),
                    Star((_token("."), _token(IDENTIFIER, label="ids"))),
                    _token("{", label="op"),
                    Optional((Rule("fieldInitializerList", "entries"),)),
                    _COMMA,
                    _token("}"),
                ),
            ),
            Alternative("ConstantLiteral", (Rule("literal", "e"),)),
        )
    ),
    "exprList": _one("exprList", *_list(Rule("expr", "e"))),
    "listInit": _one("listInit", *_list(Rule("optExpr", "elems"))),
    "fieldInitializerList": _one(
        "fieldInitializerList",
        *_list(Rule("optField", "fields"), _token(":", label="cols"), Rule("expr", "values")),
    ),
    "optField": _one("optField", _OPT, Rule("escapeIdent", "id")),
    "mapInitializerList": _one(
        "mapInitializerList", *_list(Rule("optExpr", "keys"), _token(":", label="cols"), Rule("expr", "values"))
    ),
    "escapeIdent": Definition(
        (
            Alternative("SimpleIdentifier", (_token(IDENTIFIER, label="id"),)),
            Alternative("EscapedIdentifier", (_token(ESCAPED, label="id"),)),
        )
    ),
    "optExpr": _one("optExpr", _OPT, Rule("expr", "e")),
    "literal": Definition(
        (
            Alternative("Int", (Optional((_token("-", label="sign"),)), _token(INT, label="tok"))),
            Alternative("Uint", (_token(UINT, label="tok"),)),
            Alternative("Double", (Optional((_token("-", label="sign"),)), _token(FLOAT, label="tok"))),
            Alternative("String", (_token(STRING, label="tok"),)),
            Alternative("Bytes", (_token(BYTES, label="tok"),)),
            Alternative("BoolTrue", (_token("true", label="tok"),)),
            Alternative("BoolFalse", (_token("false", label="tok"),)),
            Alternative("Null", (_token("null", label="tok"),)),
        )
    ),
}


class Role(Enum):
    """The purpose of a state."""

    PLAIN = "plain"
    STOP = "stop"
    BLOCK = "block"
    STAR_BLOCK = "star block"
    PLUS_BLOCK = "plus block"
    STAR_ENTRY = "star entry"
    STAR_BACK = "star back"
    PLUS_BACK = "plus back"


@dataclass(eq=False, slots=True)
class State:
    """A state of the network.

    It leads on by a token, by a rule, or by any number of `ways`, in the order of alternatives.
    """

    rule: str
    role: Role = Role.PLAIN
    ways: list[State] = field(default_factory=list)
    token: Token | None = None
    call: Rule | None = None
    # The state after the token or the called rule, and the next one that is not empty.
    then: State | None = None
    onward: State | None = None
    # The least precedence at which this operator may follow; None for other states.
    precedence: int | None = None
    # The name that a node gets here.
    names: str = ""
    # The loop over the operators of a rule.
    operators: bool = False
    # States have an order, so that sets of them have one form.
    number: int = field(default_factory=count().__next__)


class Network:
    """The states of all rules."""

    def __init__(self) -> None:
        self.starts = {name: State(name) for name in GRAMMAR}
        self.stops = {name: State(name, Role.STOP) for name in GRAMMAR}
        # The states that follow a call of a rule, and whether the call had the lowest precedence.
        self.follows: dict[str, list[tuple[State, bool]]] = {name: [] for name in GRAMMAR}
        for name, definition in GRAMMAR.items():
            self._define(name, definition)
        self._shorten()

    def _define(self, name: str, definition: Definition) -> None:
        end = self._choice(self.starts[name], definition.alternatives)
        if definition.operators:
            entry = self._step(end, Role.STAR_ENTRY)
            entry.operators = True
            block = self._step(entry, Role.STAR_BLOCK)
            back = State(name, Role.STAR_BACK)
            self._alternatives(block, definition.operators).ways.append(back)
            back.ways.append(entry)
            end = self._step(entry)
        end.ways.append(self.stops[name])

    def _choice(self, at: State, alternatives: tuple[Alternative, ...]) -> State:
        block = self._step(at, Role.BLOCK if len(alternatives) > 1 else Role.PLAIN)
        return self._alternatives(block, alternatives)

    def _alternatives(self, block: State, alternatives: tuple[Alternative, ...]) -> State:
        end = State(block.rule)
        for alternative in alternatives:
            start = self._step(block)
            start.names = alternative.name
            start.precedence = alternative.precedence or None
            self._sequence(start, alternative.elements, end)
        return end

    def _sequence(self, at: State, elements: tuple[Element, ...], end: State) -> None:
        """Add the elements of one alternative. Its last call returns to `end`, so all alternatives of a block share
        that state.
        """
        *others, last = elements
        at = self._step(at)
        for element in others:
            following = State(at.rule)
            self._element(at, element, following)
            at = following
        self._element(at, last, end)

    def _element(self, at: State, element: Element, end: State) -> None:
        match element:
            case Token():
                at.token, at.then = element, end
            case Rule(name, _, precedence):
                at.call, at.then = element, end
                self.follows[name].append((end, precedence == 0))
            case Optional(elements):
                block = self._step(at, Role.BLOCK)
                self._sequence(block, elements, end)
                block.ways.append(end)
            case Star(elements):
                entry = self._step(at, Role.STAR_ENTRY)
                self._sequence(entry, elements, State(at.rule, Role.STAR_BACK, [entry]))
                entry.ways.append(end)
            case Plus(elements):
                block = self._step(at, Role.PLUS_BLOCK)
                back = State(at.rule, Role.PLUS_BACK, [block, end])
                self._sequence(block, elements, back)

    def _shorten(self) -> None:
        """Skip empty states. The callers of a rule stay the same, because they tell alternatives apart."""
        pending = list(self.starts.values())
        seen: set[State] = set()
        while pending:
            state = pending.pop()
            if state in seen:
                continue
            seen.add(state)
            state.ways = [_acting(way) for way in state.ways]
            pending += state.ways
            if state.then:
                state.onward = _acting(state.then)
                pending.append(state.onward)

    def _step(self, at: State, role: Role = Role.PLAIN) -> State:
        state = State(at.rule, role)
        at.ways.append(state)
        return state


def _acting(state: State) -> State:
    """Return the first state from here on that is not empty."""
    while state.role is Role.PLAIN and not (state.token or state.call or state.names):
        state = state.ways[0]
    return state


NETWORK = Network()


@cache
def following(state: State) -> frozenset[str]:
    """Return the kinds of tokens that may follow a state, with EPSILON if its rule may end first: ATN.nextTokens."""
    found: set[str] = set()
    seen: set[State] = set()
    pending = [state]
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        if at.role is Role.STOP:
            found.add(EPSILON)
        elif at.token:
            found.update(at.token.kinds)
        elif at.call:
            # No rule is empty.
            found |= following(NETWORK.starts[at.call.name])
        pending += at.ways
    return frozenset(found)


@cache
def _lookahead(state: State) -> frozenset[str]:
    """Return the kinds of tokens that may follow a state, for any caller of its rule: LL1Analyzer.getDecisionLookahead."""
    found: set[str] = set()
    seen: set[State] = set()
    pending = [state]
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        if at.role is Role.STOP:
            pending += [follow for follow, _ in NETWORK.follows[at.rule]]
            continue
        found |= following(at) - {EPSILON}
        if EPSILON in following(at):
            pending.append(NETWORK.stops[at.rule])
    return frozenset(found)


@cache
def one_token_decides(state: State) -> dict[str, int] | None:
    """Return the alternatives of a decision by their first token; None where one token does not decide."""
    decided: dict[str, int] = {}
    for alternative, way in enumerate(state.ways, 1):
        for kind in _lookahead(way):
            if kind in decided:
                return None
            decided[kind] = alternative
    return None if state.operators else decided
