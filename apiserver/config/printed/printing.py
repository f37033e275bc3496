"""Run the commands that print a text about the program itself. They import neither the server nor its libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from apiserver.config import commands, config
from apiserver.config.command_line import HELP, VERSION
from apiserver.config.config import Config, ConfigError
from apiserver.config.printed import completion, manual, remedies, versions


def answers(argv: Sequence[str]) -> bool:
    """Return whether a command line only asks for a text about the program. The help of other commands needs more: it lists gates."""
    return not argv or argv[0] in (*commands.PRINTED, *HELP, VERSION)


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print what is asked for, and return the exit code."""
    try:
        sys.stdout.write(versions.text() if argv[:1] == [VERSION] else _text(config.parse(argv, environ)))
        sys.stdout.flush()
    except ConfigError as error:
        return misconfigured(error, argv)
    except BrokenPipeError:  # the reader has seen enough: `sluice man | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def misconfigured(error: ConfigError, argv: Sequence[str]) -> int:
    """Print every error, the remedies, and the command that helps. Return the exit code."""
    lines = [*error.errors, *remedies.of_errors(error.errors), f"see `{config.help_for(argv)}`"]
    sys.stderr.write("".join(f"sluice: {line}\n" for line in lines))
    return 2


def _text(settings: Config) -> str:
    match settings.command:
        case commands.COMPLETION:
            return completion.script(settings.action)
        case commands.MAN:
            return manual.page()
        case _:
            return versions.document() if settings.printed.output == "json" else versions.text()
