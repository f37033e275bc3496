"""Recognize texts as ANTLR's generated parser does, with its error messages and its error recovery.

It follows the states of `grammar`, and asks `prediction` where one token does not decide. It has a stack of its own, so
no text is too deep. Upstream: antlr4-go/antlr `{parser,error_strategy}.go`, google/cel-go `parser/parser.go`,
`parser/gen/cel_parser.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kubecel.parse.grammar import EPSILON, NETWORK, Role, State, following, one_token_decides
from kubecel.parse.lexer import END, KINDS, Unrecognized, Word, scan
from kubecel.parse.prediction import PREDICTION, NoViableAlternative
from kubecel.parse.source import PRINTED, Issue, Source

# Limit of the nested entries of one rule.
MAX_DEPTH = 250
# Limits of error recovery: attempts, and tokens that each attempt skips.
MAX_RECOVERIES = 30
MAX_RECOVERY_TOKENS = 256

# The message for a keyword in the place of a name.
_KEYWORD_AS_NAME = re.compile("no viable alternative at input '.(true|false|null)'")

_RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
_NAMED = frozenset(kind for kind in KINDS if kind.isupper())
_BLOCKS = frozenset((Role.BLOCK, Role.STAR_BLOCK, Role.PLUS_BLOCK, Role.STAR_ENTRY))


@dataclass(eq=False, slots=True)
class Node:
    """The parts that a rule has read so far.

    `name` is the alternative, or the rule if no alternative was found.
    """

    name: str
    offset: int
    # The parts by label, in the order of reading: words or nodes.
    parts: dict[str, list[Any]] = field(default_factory=dict)

    def word(self, label: str) -> Word | None:
        """Return the word of a label, None if it was not read."""
        return self.parts[label][0] if label in self.parts else None

    def words(self, label: str) -> list[Word]:
        """Return the words of a label."""
        return self.parts.get(label, [])

    def node(self, label: str) -> Node | None:
        """Return the node of a label, None if its rule was not entered."""
        return self.parts[label][0] if label in self.parts else None

    def nodes(self, label: str) -> list[Node]:
        """Return the nodes of a label."""
        return self.parts.get(label, [])


class Stopped(Exception):
    """Recognition ended early. `issues` has the reason, if it needs one."""


class _Mismatch(Exception):
    """The next token does not fit, and no simple recovery helps."""

    def __init__(self, message: str, word: Word) -> None:
        super().__init__(message)
        self.message = message
        self.word = word


@dataclass(eq=False, slots=True)
class _Frame:
    """A rule that was entered."""

    rule: str
    node: Node
    # The calling state and rule.
    caller: State | None
    parent: _Frame | None
    precedence: int


class Recognizer:
    """Recognizes one text."""

    def __init__(self, source: Source) -> None:
        self.issues: list[Issue] = []
        self._scan: Iterator[Word | Unrecognized] = scan(source.text)
        self._words: list[Word] = []
        self._at = 0
        self._depths = dict.fromkeys(NETWORK.starts, 0)
        # The current state, which decides the expected tokens.
        self._state = NETWORK.starts["start"]
        # The token at which recovery began. No error is reported until a token fits.
        self._recovering = False
        self._recoveries = 0
        # How many tokens recovery may still skip, None outside of it.
        self._budget: int | None = None
        self._last_error: int | None = None
        self._last_states: set[State] = set()
        self._frame: _Frame

    def read(self) -> Node:
        """Return the root node, as complete as the text allows. Raises Stopped."""
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
        """Read tokens up to an index. Report invalid characters at once."""
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
        """Return the text from one token to another, without invalid characters."""
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
        """Leave a rule and return the state that follows its call."""
        frame = self._frame
        self._depths[frame.rule] -= 1
        if frame.parent is None or frame.caller is None or frame.caller.call is None:
            return None
        self._frame = frame.parent
        frame.parent.node.parts.setdefault(frame.caller.call.label, []).append(frame.node)
        return frame.caller.onward

    def _walk(self, state: State) -> State | None:
        """Advance by one state."""
        if state.precedence:
            # The node of the rule becomes the left side of an operator.
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
        """Repeat a loop or leave it.

        The entry of a loop decides after each round; the end decides for loops that run at least once.
        """
        self._state = back
        self._sync()
        if back.role is Role.STAR_BACK:
            return self._chosen(back.ways[0])
        chosen = self._chosen(back)
        # The block decides nothing when it is entered again.
        return chosen.ways[0] if chosen.role is Role.PLUS_BLOCK else chosen

    def _chosen(self, state: State) -> State:
        """Return the next state after a decision."""
        if len(state.ways) == 1:
            return state.ways[0]
        alternatives = one_token_decides(state)
        if alternatives is None:
            alternative = self._predicted(state)
        else:
            alternative = alternatives.get(self._kind(), 0)
        if not alternative:
            if state.ways[-1].names:
                # No way of the block skips it.
                raise self._no_way(1)
            alternative = len(state.ways)
        return state.ways[alternative - 1]

    def _predicted(self, state: State) -> int:
        try:
            return PREDICTION.predict(state, self._kind, self._frame.precedence)
        except NoViableAlternative as end:
            raise self._no_way(end.ahead) from None

    # Errors

    def _complain(self, message: str, offset: int) -> None:
        """Report a syntax error. More than a hundred end the recognition."""
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
        """Note that a token fits: errors are reported again."""
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
        """Consume the token of a state. Skip one surplus token, or insert a missing one."""
        if state.token and self._kind() in state.token.kinds:
            word = self._word()
            self._fits()
            self._consume()
        else:
            word = self._recover_inline(state)
        if label:
            self._frame.node.parts.setdefault(label, []).append(word)

    def _sync(self) -> None:
        """Check before a decision whether the next token can begin any alternative."""
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
        """Return the token after the next one if it fits, and skip the next one."""
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
        """Skip tokens until one can follow a rule that was entered."""
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
        """Return the tokens that may follow a state, including those after its rule where it may end."""
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
