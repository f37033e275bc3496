"""The console script. Texts about the program itself come at once; everything else loads the server first."""

from __future__ import annotations

import importlib
import os
import sys

from apiserver.config.printed import printing


def main() -> int:
    """Run the console script."""
    argv = sys.argv[1:]
    if printing.answers(argv):
        return printing.run(argv, os.environ)
    # Loading the server takes most of a second: a shell that loads a completion script must not wait for it.
    code: int = importlib.import_module("apiserver.__main__").run(argv, os.environ)
    return code
