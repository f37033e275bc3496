"""Settings as fields of frozen dataclasses: parser, help, environment variable and value follow from one declaration.

Knows no setting. All errors are reported at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

from apiserver.config import suggestions, topics

_Value = TypeVar("_Value")
_Section = TypeVar("_Section")
_FLAG, _PREFIX = "flag", "prefix"


class ConfigError(Exception):
    """The configuration is invalid; `errors` are all reasons."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = list(errors)


class Partly(ValueError):
    """A part of a text is invalid; `value` is the value of the rest."""

    def __init__(self, value: Any, errors: Sequence[str]) -> None:
        super().__init__(*errors)
        self.value = value


@dataclass(frozen=True, slots=True)
class Choice:
    """Parses one of some names. `optional`: the text may be empty."""

    names: tuple[str, ...]
    optional: bool = False

    def __call__(self, text: str) -> str:
        if text not in self.names and (text or not self.optional):
            *first, last = self.names
            raise ValueError(f"{text!r} must be {', '.join(first)} or {last}")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One setting of some commands. `default` is text in the flag's own syntax, or one per command; None: the flag is required.

    `parse` turns a text into a value, or raises ValueError with the errors as its arguments. `switch`: on without a value. `many`: may
    be given several times; the texts are joined by `separator`. `secret`: may hold a password. `actions` are the actions of the command
    that use the flag, empty for all. `choices` are known values, for completion; `parse` decides what is valid. `short` is a second name
    of one letter. `topic` is the heading in lists of flags. `live`: a change in the configuration file applies while the server runs.
    """

    name: str
    commands: tuple[str, ...]
    actions: tuple[str, ...]
    parse: Callable[[str], Any]
    default: str | Mapping[str, str | None] | None
    text: str
    value: str
    switch: bool
    many: bool
    secret: bool
    separator: str
    short: str
    choices: tuple[str, ...]
    topic: str
    live: bool

    @property
    def option(self) -> str:
        return f"-{self.name}" if len(self.name) == 1 else f"--{self.name}"

    @property
    def variable(self) -> str:
        return f"SLUICE_{self.name.replace('-', '_').upper()}"

    @property
    def number(self) -> bool:
        """Whether the value is a plain number."""
        return (self.default_for(self.commands[0]) or "").isdecimal()

    def default_for(self, command: str) -> str | None:
        return self.default.get(command) if isinstance(self.default, Mapping) else self.default


def flag(
    name: str,
    commands: tuple[str, ...],
    parse: Callable[[str], _Value],
    default: str | Mapping[str, str | None] | None,
    *,
    text: str,
    actions: tuple[str, ...] = (),
    value: str = "TEXT",
    switch: bool = False,
    many: bool = False,
    secret: bool = False,
    separator: str = ",",
    short: str = "",
    choices: Iterable[str] = (),
    topic: str = "",
    live: bool = False,
) -> _Value:
    """Declare a field whose value is that of this flag. `text` is the help, `value` the placeholder in it.

    `choices` are those of `parse` if that is a Choice. Without `topic`, the TOPIC of the section counts.
    """
    declared = Flag(
        name=name,
        commands=commands,
        actions=actions,
        parse=parse,
        default=default,
        text=text,
        value=value,
        switch=switch,
        many=many,
        secret=secret,
        separator=separator,
        short=short,
        choices=tuple(choices) or (parse.names if isinstance(parse, Choice) else ()),
        topic=topic,
        live=live,
    )
    field: _Value = dataclasses.field(metadata={_FLAG: declared})
    return field


@dataclass(frozen=True, slots=True)
class _Prefix:
    """A prefix of the flags of a section. `defaults` are defaults that differ from the declaration, by full name."""

    text: str = ""
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def before(self, inner: _Prefix) -> _Prefix:
        """Combine with the prefix of a section inside this one."""
        inner_defaults = {f"{self.text}{name}": default for name, default in inner.defaults.items()}
        return _Prefix(f"{self.text}{inner.text}", {**inner_defaults, **self.defaults})

    def named(self, flag: Flag) -> Flag:
        name = f"{self.text}{flag.name}"
        return dataclasses.replace(flag, name=name, default=self.defaults.get(name, flag.default))


_NONE = _Prefix()


def prefixed(prefix: str, **defaults: str) -> Any:
    """Declare a field that is a section, whose flags begin with `prefix`. So one section can stand in several places.

    `defaults` are those of this place, by the flag's name without the prefix, with `_` for `-`.
    """
    here = {f"{prefix}{name.replace('_', '-')}": default for name, default in defaults.items()}
    return dataclasses.field(metadata={_PREFIX: _Prefix(prefix, here)})


def declared(section: type[Any], prefix: _Prefix = _NONE, *, topic: str = topics.MISC) -> Iterator[Flag]:
    """Yield the flags of a section and of the sections in it, in the order of their fields.

    A section names the topic of its flags as `TOPIC`; without it they have the topic of the section around it.
    """
    here: str = getattr(section, "TOPIC", topic)
    for field, inner in _fields(section):
        if inner is not None:
            yield from declared(inner, prefix.before(field.metadata.get(_PREFIX, _NONE)), topic=here)
        elif _FLAG in field.metadata:
            found = prefix.named(field.metadata[_FLAG])
            yield found if found.topic else dataclasses.replace(found, topic=here)


def section(made: type[_Section], values: Mapping[str, Any], prefix: _Prefix = _NONE, **others: Any) -> _Section:
    """Build a section from the values of its flags, by flag name. `others` are the fields that are not flags."""
    found = dict(others)
    for field, inner in _fields(made):
        if inner is not None:
            found[field.name] = section(inner, values, prefix.before(field.metadata.get(_PREFIX, _NONE)))
        elif _FLAG in field.metadata:
            found[field.name] = values[prefix.named(field.metadata[_FLAG]).name]
    return made(**found)


def _fields(section: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], type[Any] | None]]:
    """Yield each field, with its type if that is a section."""
    types = typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        yield field, types[field.name] if dataclasses.is_dataclass(types[field.name]) else None


HIDDEN = "CLASSIFIED"
"""The text of a secret, as upstream shows it (kubernetes/apiserver `pkg/server/flagz/flagreader.go`)."""
NO_VALUE = "\0"
"""The value of a flag that lacks its required value."""


class _Help(argparse.HelpFormatter):
    """Folds the first line of a help text; later lines stay as they are."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if action.const == NO_VALUE:
            return str(action.metavar)
        return super()._format_args(action, default_metavar)

    def _split_lines(self, text: str, width: int) -> list[str]:
        first, *rest = text.split("\n")
        return [*super()._split_lines(first, width), *rest]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Fold the paragraphs of a text, except those of several lines."""
        paragraphs = text.split("\n\n")
        return "\n\n".join(
            part if "\n" in part else super(_Help, self)._fill_text(part, width, indent) for part in paragraphs
        )


class Parser(argparse.ArgumentParser):
    """argparse splits the words and prints the help, by topic; an error is raised, not printed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Help, **settings)
        self._topics: dict[str, argparse._ArgumentGroup] = {}

    def error(self, message: str) -> NoReturn:
        raise ConfigError([message])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command or action, with the name that was probably meant."""
        if action.choices is not None and value not in action.choices:
            known = [*map(str, action.choices)]
            guess = suggestions.question(str(value), known) or f": use one of {', '.join(known)}"
            raise ConfigError([f"unknown {action.dest} {value}{guess}"])

    def offer(self, flag: Flag, command: str, *, action: str | None = None, choices: Sequence[str] = ()) -> None:
        """Accept this flag of the command. Its help ends with `choices`, one per line. Without help if `action` does not use the flag.

        `action` is "" for all actions of the command, None for a command without actions.
        """
        group = self._topics.get(flag.topic)
        if group is None:
            group = self._topics[flag.topic] = self.add_argument_group(f"{flag.topic} flags")
        default = flag.default_for(command)
        said = flag.text if action != "" or not flag.actions else f"{', '.join(flag.actions)}: {flag.text}"
        hidden = bool(action and flag.actions and action not in flag.actions)
        if flag.switch:
            state = "on" if default == "true" else "off"
            text = argparse.SUPPRESS if hidden else f"{said} (default: {state}) [{flag.variable}]"
            group.add_argument(flag.option, dest=flag.name, nargs="?", const="true", metavar="true|false", help=text)
            group.add_argument(
                f"--no-{flag.name}", dest=flag.name, action="store_const", const="false", help=argparse.SUPPRESS
            )
            return
        shown = "required" if default is None else f"default: {default}" if default else ""
        text = "\n".join((f"{said}{f' ({shown})' if shown else ''} [{flag.variable}]", *choices)).replace("%", "%%")
        group.add_argument(
            *([f"-{flag.short}"] if flag.short else []),
            flag.option,
            dest=flag.name,
            metavar=flag.value,
            action="append" if flag.many else "store",
            nargs="?",
            const=NO_VALUE,
            help=argparse.SUPPRESS if hidden else text,
        )


class Values(dict[str, Any]):
    """By flag name. Flags in `wrong` have errors: they have no value, or that of their valid part.

    Flags that are not `given` have defaults.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wrong: set[str] = set()
        self.given: set[str] = set()
        self.texts: dict[str, str] = {}
        """The flags of the command as they are shown to people: given or by default, secrets hidden."""
        self.exact: dict[str, str] = {}
        """The same with secrets."""
        self.errors: list[str] = []

    def note(self, flag: Flag, errors: Iterable[str]) -> None:
        self.wrong.add(flag.name)
        self.errors += errors

    def completed(self, flags: Iterable[Flag]) -> Mapping[str, Any]:
        """Return all values, with the default of a flag that has none."""
        return {flag.name: self[flag.name] if flag.name in self else _unused(flag) for flag in flags}


class Configured(Protocol):
    """The flags of a configuration file."""

    @property
    def texts(self) -> Mapping[str, str]: ...

    def source(self, name: str) -> str:
        """Return the place of a flag's value, for errors."""


def values(
    flags: Sequence[Flag],
    command: str,
    words: argparse.Namespace,
    environ: Mapping[str, str],
    *,
    configured: Configured,
) -> Values:
    """Return every flag's value: from the command line, else the environment, else the configuration file, else its default."""
    found = Values()
    for flag in flags:
        if command not in flag.commands:
            found[flag.name] = _unused(flag)
            continue
        source, text = flag.option, getattr(words, flag.name)
        given = text if isinstance(text, list) else [text]
        if NO_VALUE in given:
            found.note(flag, [f"{source}: needs a value"])
            continue
        if isinstance(text, list):
            text = flag.separator.join(text)
        if text is None and flag.variable in environ:
            source, text = flag.variable, environ[flag.variable]
        if text is None and flag.name in configured.texts:
            source, text = configured.source(flag.name), configured.texts[flag.name]
        if text is None:
            text = flag.default_for(command)
        else:
            found.given.add(flag.name)
        found.exact[flag.name] = text or ""
        found.texts[flag.name] = HIDDEN if flag.secret and text else text or ""
        if text is None:
            found.note(flag, [f"{flag.option} (or {flag.variable}) is required"])
            continue
        try:
            found[flag.name] = flag.parse(text)
        except ValueError as e:
            found.note(flag, (f"{source}: {text}" for text in e.args))
            if isinstance(e, Partly):
                found[flag.name] = e.value
    return found


def _unused(flag: Flag) -> Any:
    """Return the value of a flag for a command that does not have it."""
    default = flag.default_for(flag.commands[0])
    return "" if default is None else flag.parse(default)
