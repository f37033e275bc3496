"""Read the file of `--config`: YAML whose keys are names of flags.

The keys are flat, as the flags are: a name means the same on the command line, in the environment, in the file and at /flagz, and a user
can search for it in every place. The file is read strictly, as upstream reads its configuration files: unknown and repeated keys and
values of the wrong type are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.yaml import as_yaml
from apiserver.config import suggestions
from apiserver.config.flags import Flag

CONFIG = "config"
"""The flag that names the file."""
MOST_BYTES = 256 << 10
"""The largest file: many times what all flags need, and read in a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Found:
    """The texts of flags in a file, by name, as on the command line."""

    path: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[str] = ()

    def source(self, name: str) -> str:
        """Return the place of a flag's value, for errors."""
        return f"{self.path}: {name}"


def read(path: str, flags: Iterable[Flag], command: str) -> Found:
    """Read a file for a command. A file that does not exist has no values: the parser of `--config` reports it."""
    try:
        raw = _content(Path(path))
        reading = as_yaml.read(raw)
        document = reading.value
    except FileNotFoundError:
        return Found(path)
    except OSError as error:
        return Found(path, errors=[f"{path}: cannot be read: {error.strerror}; let this user read the file"])
    except (as_yaml.YAMLProblem, StatusError, _Unfit) as error:
        return Found(path, errors=[f"{path}: {error}"])
    if document is None:
        return Found(path)
    if not isinstance(document, dict):
        return Found(
            path, errors=[f"{path}: must be a map of flags, such as `secure-port: 7643`, and is {_kind(document)}"]
        )
    errors = [f"{path}: {_repeated(line)}" for line in reading.repeats.splitlines()[1:]]
    known = {flag.name: flag for flag in flags}
    texts = dict[str, str]()
    for name, value in document.items():
        flag = known.get(name)
        if flag is None or command not in flag.commands or name == CONFIG:
            errors.append(f"{path}: {_not_taken(name, known, command)}")
            continue
        try:
            texts[name] = _text(flag, name, value)
        except _Unfit as error:
            errors.append(f"{path}: {error}")
    return Found(path, texts, errors)


class _Unfit(ValueError):
    """A value has the wrong type."""


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise _Unfit(f"is larger than {MOST_BYTES} bytes: a configuration file holds only flags")
    if re.search(rb"^---", raw.lstrip().removeprefix(b"---"), re.MULTILINE):
        raise _Unfit("holds several documents: write all flags into one")
    return raw


def _repeated(line: str) -> str:
    """Return upstream's text about a repeated key with the remedy."""
    return f"{line.strip()}: write each flag once"


def _not_taken(name: str, known: Mapping[str, Flag], command: str) -> str:
    if name == CONFIG:
        return f"{name}: a configuration file names no other: move the flags of both into one file"
    if (other := known.get(name)) is not None:
        return f"{name}: is a flag of {' and '.join(f'`sluice {taker}`' for taker in other.commands)}, not of `sluice {command}`"
    own = [flag.name for flag in known.values() if command in flag.commands and flag.name != CONFIG]
    plain = name.lstrip("-").lower().replace("_", "-").removeprefix("sluice-")
    return f"unknown flag {name[: suggestions.LONGEST]}{suggestions.question(plain, own)}"


def _text(flag: Flag, path: str, value: Any) -> str:
    """Return a value as it would be on the command line. Raises _Unfit."""
    if flag.switch:
        return _scalar(path, value, bool)
    if flag.many and isinstance(value, list):
        return flag.separator.join(_scalar(f"{path}[{i}]", each, str) for i, each in enumerate(value))
    if flag.many and isinstance(value, dict) and "=" in flag.value:
        return flag.separator.join(f"{key}={_scalar(f'{path}.{key}', each, bool, str)}" for key, each in value.items())
    return _scalar(path, value, int, float) if flag.number else _scalar(path, value, str)


_EXPECTED: Mapping[type, str] = {bool: "true or false", int: "a number", str: "a text"}


def _scalar(path: str, value: Any, *types: type) -> str:
    if isinstance(value, bool) and bool in types:
        return "true" if value else "false"
    if isinstance(value, types) and not isinstance(value, bool):
        return str(value)
    expected = " or ".join(text for type_, text in _EXPECTED.items() if type_ in types)
    remedy = ": write it in quotes" if str in types and isinstance(value, bool | int | float) else ""
    remedy = ": take the quotes away" if isinstance(value, str) and str not in types else remedy
    raise _Unfit(f"{path}: must be {expected}, and is {_kind(value)}{remedy}")


def _kind(value: Any) -> str:
    kinds: Sequence[tuple[type | tuple[type, ...], str]] = (
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "a text"),
        (list, "a list"),
        (dict, "a map"),
    )
    return next((text for type_, text in kinds if isinstance(value, type_)), "empty")
