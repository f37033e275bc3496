"""Texts read as the parser reads them that ANTLR makes: with its words for what is wrong, and its way to go on after it.

It walks along the states of `grammar`, asks `prediction` where one token does not decide, and keeps a stack of its own, so that no
text is too deep for it. Upstream: antlr4-go/antlr `{parser,error_strategy}.go`, google/cel-go
`parser/parser.go`, `parser/gen/cel_parser.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kubecel.parse.grammar import EPSILON, NETWORK, Role, State, following, one_token_decides
from kubecel.parse.lexer import END, KINDS, Unrecognized, Word, scan
from kubecel.parse.prediction import PREDICTION, NoWay
from kubecel.parse.source import PRINTED, Issue, Source

# No rule is entered more often than this without being left.
MAX_DEPTH = 250
# So many times the recognizer tries to go on after an error, looking so many tokens ahead each time.
MAX_RECOVERIES = 30
MAX_RECOVERY_TOKENS = 256

# Words for a keyword where a name should stand.
_KEYWORD_AS_NAME = re.compile("no viable alternative at input '.(true|false|null)'")

_RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
_NAMED = frozenset(kind for kind in KINDS if kind.isupper())
_BLOCKS = frozenset((Role.BLOCK, Role.STAR_BLOCK, Role.PLUS_BLOCK, Role.STAR_ENTRY))


@dataclass(eq=False, slots=True)
class Node:
    """What was read by a rule, as far as it was read. `name` is the alternative, or the rule when no alternative was found."""

    name: str
    offset: int
    # What was read by label, in the order in which it was read: words, or nodes.
    parts: dict[str, list[Any]] = field(default_factory=dict)

    def word(self, label: str) -> Word | None:
        """The word of a label, None when it was not read."""
        return self.parts[label][0] if label in self.parts else None

    def words(self, label: str) -> list[Word]:
        """The words of a label."""
        return self.parts.get(label, [])

    def node(self, label: str) -> Node | None:
        """The node of a label, None when its rule was not entered."""
        return self.parts[label][0] if label in self.parts else None

    def nodes(self, label: str) -> list[Node]:
        """The nodes of a label."""
        return self.parts.get(label, [])


class Stopped(Exception):
    """It is not gone on with the text. `issues` has the reason, if it needs one."""


class _Mismatch(Exception):
    """The next token does not fit, and nothing simple helps."""

    def __init__(self, message: str, word: Word) -> None:
        super().__init__(message)
        self.message = message
        self.word = word


@dataclass(eq=False, slots=True)
class _Frame:
    """A rule that was entered."""

    rule: str
    node: Node
    # The state that called it, and the rule that did.
    caller: State | None
    parent: _Frame | None
    precedence: int


class Recognizer:
    """Reads one text."""

    def __init__(self, source: Source) -> None:
        self.issues: list[Issue] = []
        self._scan: Iterator[Word | Unrecognized] = scan(source.text)
        self._words: list[Word] = []
        self._at = 0
        self._depths = dict.fromkeys(NETWORK.starts, 0)
        # The state that the recognizer is in, for what is expected in it.
        self._state = NETWORK.starts["start"]
        # In recovery from here on: nothing is reported until a token fits.
        self._recovering = False
        self._recoveries = 0
        # How many tokens recovery may still pass over, None outside of it.
        self._budget: int | None = None
        self._last_error: int | None = None
        self._last_states: set[State] = set()
        self._frame: _Frame

    def read(self) -> Node:
        """What the text says, as far as it says anything. Raises Stopped."""
        self._enter("start")
        root = self._frame
        state: State | None = NETWORK.starts["start"]
        while state is not None:
            try:
                state = self._walk(state)
            except _Mismatch as mismatch:
                self._report(mismatch.message, mismatch.word)
                self._recover()
                state = self._left()
        return root.node

    # Tokens

    def _fill(self, index: int) -> None:
        """Have the tokens up to an index. What is no token is reported as soon as it is met."""
        while len(self._words) <= index and not (self._words and self._words[-1].kind == END):
            found = next(self._scan)
            if isinstance(found, Unrecognized):
                self._complain(f"token recognition error at: '{found.text}'", found.offset)
            else:
                self._words.append(found)

    def _word(self, ahead: int = 1) -> Word:
        index = self._at + ahead - 1
        words = self._words
        if index < len(words):
            return words[index]
        self._fill(index)
        return words[min(index, len(words) - 1)]

    def _kind(self, ahead: int = 1) -> str:
        return self._word(ahead).kind

    def _consume(self) -> None:
        if self._budget is not None:
            if self._budget == 0:
                self._stop(f"error recovery token lookahead limit exceeded: {MAX_RECOVERY_TOKENS}")
            self._budget -= 1
        if self._kind() != END:
            self._at += 1
            self._fill(self._at)

    def _text(self, first: int, last: int) -> str:
        """What is written from one token to another, without what is no token."""
        words = self._words[first : last + 1]
        return words[0].text + "".join(word.before + word.text for word in words[1:])

    # Rules

    def _enter(self, rule: str, caller: State | None = None, precedence: int = 0) -> None:
        parent = self._frame if caller else None
        self._frame = _Frame(rule, Node(rule, self._word().offset), caller, parent, precedence)
        self._depths[rule] += 1
        if self._depths[rule] > MAX_DEPTH:
            self._stop(f"expression recursion limit exceeded: {MAX_DEPTH}")

    def _left(self) -> State | None:
        """Leave a rule: the state that follows its call."""
        frame = self._frame
        self._depths[frame.rule] -= 1
        if frame.parent is None or frame.caller is None or frame.caller.call is None:
            return None
        self._frame = frame.parent
        frame.parent.node.parts.setdefault(frame.caller.call.label, []).append(frame.node)
        return frame.caller.onward

    def _walk(self, state: State) -> State | None:
        """One state on."""
        if state.precedence:
            # What was read of the rule becomes the left side of an operator.
            left = self._frame.node
            self._frame.node = Node(state.rule, left.offset, {"left": [left]})
        if state.names:
            self._frame.node.name = state.names
        if state.token:
            self._state = state
            self._match(state, state.token.label)
            return state.onward
        if state.call:
            self._state = state
            self._enter(state.call.name, state, state.call.precedence)
            return NETWORK.starts[state.call.name]
        if state.role is Role.STOP:
            return self._left()
        if state.role in (Role.STAR_BACK, Role.PLUS_BACK):
            return self._looped(state)
        if len(state.ways) == 1 and state.role is not Role.PLUS_BLOCK:
            return state.ways[0]
        self._state = state
        self._sync()
        return self._chosen(state)

    def _looped(self, back: State) -> State:
        """Again, or on: the entry of a loop decides after each round, the end of one that is done at least once."""
        self._state = back
        self._sync()
        if back.role is Role.STAR_BACK:
            return self._chosen(back.ways[0])
        chosen = self._chosen(back)
        # The block decides nothing when it is entered again.
        return chosen.ways[0] if chosen.role is Role.PLUS_BLOCK else chosen

    def _chosen(self, state: State) -> State:
        """The way on from a decision."""
        if len(state.ways) == 1:
            return state.ways[0]
        alternatives = one_token_decides(state)
        if alternatives is None:
            alternative = self._predicted(state)
        else:
            alternative = alternatives.get(self._kind(), 0)
        if not alternative:
            if state.ways[-1].names:
                # Not one way of the block is to leave it out.
                raise self._no_way(1)
            alternative = len(state.ways)
        return state.ways[alternative - 1]

    def _predicted(self, state: State) -> int:
        try:
            return PREDICTION.predict(state, self._kind, self._frame.precedence)
        except NoWay as end:
            raise self._no_way(end.ahead) from None

    # Errors

    def _complain(self, message: str, offset: int) -> None:
        """A syntax error; more than a hundred are too many."""
        message = _KEYWORD_AS_NAME.sub(r"mismatched input '\1' expecting IDENTIFIER", message)
        if len(self.issues) >= PRINTED:
            self.issues.append(Issue(offset, f"Syntax error: More than {PRINTED} syntax errors"))
            raise Stopped
        self.issues.append(Issue(offset, f"Syntax error: {message}"))

    def _stop(self, message: str) -> None:
        self.issues.append(Issue(None, message))
        raise Stopped

    def _report(self, message: str, word: Word) -> None:
        if not self._recovering:
            self._recovering = True
            self._complain(message, word.offset)

    def _fits(self) -> None:
        """A token was as expected: errors are reported again."""
        self._recovering = False
        self._last_error = None
        self._last_states = set()

    def _mismatch(self) -> _Mismatch:
        expected = _listed(self._expected(self._state))
        return _Mismatch(f"mismatched input {_shown(self._word())} expecting {expected}", self._word())

    def _no_way(self, ahead: int) -> _Mismatch:
        first, last = self._at, min(self._at + ahead - 1, len(self._words) - 1)
        text = END if self._kind() == END else self._text(first, last)
        return _Mismatch(f"no viable alternative at input {_quoted(text)}", self._words[last])

    def _match(self, state: State, label: str) -> None:
        """The token that a state is left by; one too many is passed over, one that is missing is made up."""
        if state.token and self._kind() in state.token.kinds:
            word = self._word()
            self._fits()
            self._consume()
        else:
            word = self._recover_inline(state)
        if label:
            self._frame.node.parts.setdefault(label, []).append(word)

    def _sync(self) -> None:
        """Before a decision: whether the next token can begin anything."""
        if self._recovering:
            return
        state = self._state
        possible = following(state)
        if EPSILON in possible or self._kind() in possible:
            return
        if state.role in _BLOCKS:
            if self._delete() is None:
                raise self._mismatch()
        elif state.role in (Role.STAR_BACK, Role.PLUS_BACK):
            self._extraneous()
            self._pass_until(self._expected(state) | self._recovery_set())

    def _delete(self) -> Word | None:
        """The token after the next one when that is what is expected; the next one is passed over."""
        if self._kind(2) not in self._expected(self._state):
            return None
        self._extraneous()
        self._consume()
        self._fits()
        return self._word()

    def _extraneous(self) -> None:
        expected = _listed(self._expected(self._state))
        self._report(f"extraneous input {_shown(self._word())} expecting {expected}", self._word())

    def _recover_inline(self, state: State) -> Word:
        self._count_recovery()
        self._budget = MAX_RECOVERY_TOKENS
        try:
            word = self._delete()
            if word is not None:
                self._consume()
                return word
        finally:
            self._budget = None
        if state.then is None or self._kind() not in self._expected(state.then):
            raise self._mismatch()
        expected = self._expected(state)
        self._report(f"missing {_listed(expected)} at {_shown(self._word())}", self._word())
        missing = min(expected, key=_RANKS.__getitem__)
        before = self._words[self._at - 1] if self._kind() == END and self._at else self._word()
        return Word(missing, f"<missing {_name(missing)}>", before.offset)

    def _count_recovery(self) -> None:
        self._recoveries += 1
        if self._recoveries > MAX_RECOVERIES:
            self._complain(f"error recovery attempt limit exceeded: {MAX_RECOVERIES}", self._word().offset)
            raise Stopped

    def _recover(self) -> None:
        """Pass over tokens until one comes that can follow a rule that was entered."""
        self._count_recovery()
        self._budget = MAX_RECOVERY_TOKENS
        try:
            if self._last_error == self._at and self._state in self._last_states:
                self._consume()
            self._last_error = self._at
            self._last_states.add(self._state)
            self._pass_until(self._recovery_set())
        finally:
            self._budget = None

    def _pass_until(self, kinds: frozenset[str]) -> None:
        while self._kind() != END and self._kind() not in kinds:
            self._consume()

    def _recovery_set(self) -> frozenset[str]:
        kinds: set[str] = set()
        frame = self._frame
        while frame.caller and frame.caller.then and frame.parent:
            kinds |= following(frame.caller.then)
            frame = frame.parent
        return frozenset(kinds - {EPSILON})

    def _expected(self, state: State) -> frozenset[str]:
        """The tokens that may be next in a state, in those that called its rule where it may end."""
        kinds = following(state)
        expected = set(kinds)
        frame = self._frame
        while EPSILON in kinds and frame.caller and frame.caller.then and frame.parent:
            kinds = following(frame.caller.then)
            expected |= kinds
            frame = frame.parent
        expected.discard(EPSILON)
        if EPSILON in kinds:
            expected.add(END)
        return frozenset(expected)


def _quoted(text: str) -> str:
    text = text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{text}'"


def _shown(word: Word) -> str:
    return _quoted(word.text or END)


def _name(kind: str) -> str:
    return kind if kind == END or kind in _NAMED else f"'{kind}'"


def _listed(kinds: frozenset[str]) -> str:
    names = [_name(kind) for kind in sorted(kinds, key=_RANKS.__getitem__)]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
