"""The grammar of the language, and the network of states that ANTLR makes of it.

The network is what `prediction` looks ahead in and `recognizer` walks along: words and order of syntax errors depend on its shape.
Upstream: google/cel-go `parser/gen/CEL.g4`; antlr/antlr4 `ParserATNFactory`, `LL1Analyzer`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import count
from typing import NamedTuple

from kubecel.parse.lexer import BYTES, END, ESCAPED, FLOAT, IDENTIFIER, INT, STRING, UINT

# In a set of tokens that may follow: the rule may end here.
EPSILON = "<EPSILON>"


class Token(NamedTuple):
    """One token of several kinds. What is labelled is kept in the tree."""

    kinds: tuple[str, ...]
    label: str = ""


class Rule(NamedTuple):
    """What a rule describes; `precedence` is what its operators must bind as tightly as at least."""

    name: str
    label: str = ""
    precedence: int = 0


class Optional(NamedTuple):
    """Once or not at all."""

    elements: tuple[Element, ...]


class Star(NamedTuple):
    """Any number of times."""

    elements: tuple[Element, ...]


class Plus(NamedTuple):
    """Once or more."""

    elements: tuple[Element, ...]


class Alternative(NamedTuple):
    """One of several ways to write something, by the name that its node gets; of an operator with its precedence."""

    name: str
    elements: tuple[Element, ...]
    precedence: int = 0


Element = Token | Rule | Optional | Star | Plus


class Definition(NamedTuple):
    """A rule: one of `alternatives`; and any number of `operators`, whose left side is all that was read before."""

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
    """Once or more, with commas between."""
    return *elements, Star((_token(","), *elements))


# The order of alternatives is part of the language: where two fit, the first one counts.
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
    """What a state does."""

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
    """A state of the network. It leads on by one of: a token, a rule, or any number of `ways`, in the order of alternatives."""

    rule: str
    role: Role = Role.PLAIN
    ways: list[State] = field(default_factory=list)
    token: Token | None = None
    call: Rule | None = None
    # What the token or the called rule leads to, and the next state from there that does anything.
    then: State | None = None
    onward: State | None = None
    # What an operator of the way needs to bind as tightly as; None for all others.
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
        # The states that follow a call of a rule, and whether the call was one of the loosest precedence.
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
        """What ends an alternative leads to `end` itself: calls that end alternatives of one block return to one state."""
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
        """Lead past the states that do nothing. Who called a rule stays the same, by which alternatives are told apart."""
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
    """The first state from here on that does anything."""
    while state.role is Role.PLAIN and not (state.token or state.call or state.names):
        state = state.ways[0]
    return state


NETWORK = Network()


@cache
def following(state: State) -> frozenset[str]:
    """The kinds of tokens that may be next in a state, and EPSILON when its rule may end before: ATN.nextTokens."""
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
            # No rule describes nothing at all.
            found |= following(NETWORK.starts[at.call.name])
        pending += at.ways
    return frozenset(found)


@cache
def _lookahead(state: State) -> frozenset[str]:
    """The kinds of tokens that may be next in a state, wherever its rule is called: LL1Analyzer.getDecisionLookahead."""
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
    """The alternatives of a decision by the token that begins them; None where one token is not enough to tell."""
    decided: dict[str, int] = {}
    for alternative, way in enumerate(state.ways, 1):
        for kind in _lookahead(way):
            if kind in decided:
                return None
            decided[kind] = alternative
    return None if state.operators else decided
