"""Several nodes at a time, each of a process of its own: a node mostly waits."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from tests.fixtures.processes import start

Commands = Sequence[tuple[Sequence[str], "IO[bytes] | None"]]
"""Commands, each with the file for its output; without a file it goes to the terminal."""


def run(commands: Commands, environ: Mapping[str, str]) -> list[int]:
    """Run the commands and return their exit codes. An interrupt is passed on, and each removes its node."""
    with contextlib.ExitStack() as closing:
        processes = []
        for number, (command, output) in enumerate(commands):
            process = start(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environ, "SLUICE_NODE_NUMBER": str(number)},
                # Ctrl-C reaches us alone.
                start_new_session=True,
            )
            closing.callback(_stop, process)
            processes.append(process)
        return [process.wait() for process in processes]


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    process.wait()
