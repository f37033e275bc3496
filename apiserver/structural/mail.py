"""Tell whether a text is one e-mail address, as Go's `net/mail` parses it: `a@b.c`, `A <a@b.c>`, a group with one member.

Upstream: golang/go `src/net/mail/message.go` (ParseAddress), `src/mime/encodedword.go`.
"""

from __future__ import annotations

import base64
import re

from kubecel.libraries import ip

_SPACE = re.compile("[ \t]*")
# Any character beyond ASCII may stand in a word.
_ATOM = re.compile(r"[^\x00-\x20\x7f()<>\[\]:;@\\,\"]+")
_QUOTED = re.compile(r'"((?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\[^\x00-\x08\x0a-\x1f\x7f])*)"')
_LITERAL = re.compile(r"\[([^\x00-\x20\x7f\[\]\\]*)\]")
_COMMENT_PART = re.compile(r"[^()\\]+|\\.?|[()]", re.DOTALL)
_ENCODED = re.compile(r"=\?([^?]+)\?([^?])\?([^?]*)\?=")
_QUOTED_PRINTABLE = re.compile(r"(?:=[0-9A-Fa-f]{2}|[\t\n\r -<>-~])*")
_BASE64 = re.compile("[A-Za-z0-9+/]*={0,2}")
_CHARSETS = ("utf-8", "iso-8859-1", "us-ascii")


class _WrongError(Exception):
    pass


def is_address(text: str) -> bool:
    """Return whether a text is one address."""
    try:
        parser = _Parser(text)
        count = parser.address(group=True)
        parser.skip_comments()
    except _WrongError:
        return False
    return count == 1 and parser.at == len(text)


class _Parser:
    """Reads addresses. Each method raises _WrongError, or leaves `at` behind what it read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def address(self, *, group: bool) -> int:
        """Read an address or, if that is allowed, a group. Return the number of addresses."""
        self._skip_space()
        if self.at == len(self._text):
            raise _WrongError
        start = self.at
        try:
            self._specification()
        except _WrongError:
            self.at = start
        else:
            self._skip_space()
            if self._peek() == "(":
                self._name_comment()
            return 1
        if self._peek() != "<":
            self._phrase()
        self._skip_space()
        if group and self._consume(":"):
            return self._group()
        self._expect("<")
        self._specification()
        self._expect(">")
        return 1

    def _group(self) -> int:
        self._skip_space()
        if self._consume(";"):
            self.skip_comments()
            return 0
        count = 0
        while True:
            self._skip_space()
            count += self.address(group=False)
            self.skip_comments()
            if self._consume(";"):
                self.skip_comments()
                return count
            self._expect(",")

    def _specification(self) -> None:
        """Read `local@domain`."""
        self._skip_space()
        if self._peek() == '"':
            if not self._match(_QUOTED)[1]:
                raise _WrongError
        else:
            self._dotted()
        self._expect("@")
        self._skip_space()
        if self._peek() != "[":
            self._dotted()
            return
        try:
            _, zone = ip.parse(self._match(_LITERAL)[1])
        except ip.AddressError:
            raise _WrongError from None
        if zone:
            raise _WrongError

    def _dotted(self) -> None:
        atom = self._match(_ATOM)[0]
        if atom.startswith(".") or ".." in atom or atom.endswith("."):
            raise _WrongError

    def _phrase(self) -> None:
        """Read words up to the first one that is wrong. There must be one."""
        words, encoded = 0, False
        wrong = False
        while not wrong:
            if words:
                self.skip_comments()
            self._skip_space()
            if self.at == len(self._text):
                break
            try:
                if self._peek() == '"':
                    self._match(_QUOTED)
                    words += 1
                elif (decoded := _decoded(self._match(_ATOM)[0])) is None:
                    words += 1
                else:
                    encoded = encoded or decoded
            except _WrongError:
                wrong = True
        if wrong and not words and not encoded:
            raise _WrongError

    def _name_comment(self) -> None:
        start = self.at + 1
        self._comment()
        comment = self._text[start : self.at - 1]
        for word in re.split("[ \t]+", re.sub(r"\\(.)", r"\1", comment, flags=re.DOTALL)):
            _decoded(word)

    def skip_comments(self) -> None:
        """Skip spaces and comments in parentheses."""
        self._skip_space()
        while self._peek() == "(":
            self._comment()
            self._skip_space()

    def _comment(self) -> None:
        depth = 0
        while True:
            part = self._match(_COMMENT_PART)[0]
            depth += (part == "(") - (part == ")")
            if not depth:
                return

    def _skip_space(self) -> None:
        self._match(_SPACE)

    def _peek(self) -> str:
        return self._text[self.at : self.at + 1]

    def _consume(self, mark: str) -> bool:
        found = self._peek() == mark
        self.at += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._consume(mark):
            raise _WrongError

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._text, self.at)
        if match is None:
            raise _WrongError
        self.at = match.end()
        return match


def _decoded(word: str) -> bool | None:
    """Return whether an encoded word (`=?utf-8?q?caf=C3=A9?=`) says anything; None if the word is not encoded. Raises _WrongError for an
    unknown charset."""
    match = _ENCODED.fullmatch(word)
    if match is None or len(word.encode(errors="surrogatepass")) < 8:
        return None
    charset, encoding, content = match.groups()
    if encoding in "qQ":
        if _QUOTED_PRINTABLE.fullmatch(content) is None:
            return None
    elif encoding in "bB":
        # Go skips line breaks.
        content = content.replace("\r", "").replace("\n", "")
        if _BASE64.fullmatch(content) is None or len(content) % 4:
            return None
        content = base64.b64decode(content).decode("latin-1")
    else:
        return None
    if charset.lower() not in _CHARSETS:
        raise _WrongError
    return bool(content)
