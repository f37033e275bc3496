"""Completion as users meet it: a real shell on a terminal, with the tab key."""

from __future__ import annotations

import os
import pathlib
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

from apiserver.config import commands, reference
from apiserver.config.printed import completion

START = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}
PROGRAM = "sluice() { printf 'BE''GIN'; printf '<%s>' \"$@\"; printf 'E''ND\\n'; }"
"""A program that prints its arguments, in place of `sluice`."""
SETUP = {
    "bash": [PROGRAM],
    "zsh": ["PS1=; unsetopt beep; autoload -Uz compinit; compinit -D -u", PROGRAM],
    "fish": [
        "function fish_prompt; end",
        "function sluice; printf 'BE''GIN'; printf '<%s>' $argv; printf 'E''ND\\n'; end",
    ],
}
CONTROLLED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal that of its session, and becomes the program."""
SECONDS = 120.0

CASES = [
    ("sluice ser\t", ["serve"]),
    ("sluice comp\tz\t", ["completion", "zsh"]),
    ("sluice store ini\t", ["store", "init"]),
    ("sluice dev --data-d\tx", ["dev", "--data-dir", "x"]),
    ("sluice dev --logging-format j\t", ["dev", "--logging-format", "json"]),
    ("sluice dev --logging-format=j\t", ["dev", "--logging-format=json"]),
    ("sluice serve --tls-cert-file tls.c\t", ["serve", "--tls-cert-file", "tls.crt"]),
    ("sluice dev --data-dir fol\t", ["dev", "--data-dir", "folder"]),
    ("sluice dev --no-sa\t", ["dev", "--no-samples"]),
    (
        "sluice store backup --redis-url redis://h --onl\tx",
        ["store", "backup", "--redis-url", "redis://h", "--only", "x"],
    ),
    ("sluice serve --store-durability=rep\t", ["serve", "--store-durability=replica"]),
    (
        "sluice dev --disable-admission-plugins NodeRestriction,ResourceQ\t",
        ["dev", "--disable-admission-plugins", "NodeRestriction,ResourceQuota"],
    ),
    ("sluice version -o js\t", ["version", "-o", "json"]),
    # A flag of another command or action is not offered.
    ("sluice roles --data-d\t", ["roles", "--data-d"]),
    ("sluice store init --onl\t", ["store", "init", "--onl"]),
]


class Terminal:
    """A shell on a terminal, in a folder."""

    def __init__(self, shell: str, folder: pathlib.Path) -> None:
        program = shutil.which(shell)
        if program is None:
            pytest.skip(f"{shell} is not installed")
        script = folder / f"completion.{shell}"
        script.write_text(completion.script(shell))
        self._ours, theirs = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLED, program, *START[shell]],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        for line in (*SETUP[shell], f"source {script}"):
            os.write(self._ours, f"{line}\n".encode())

    def arguments(self, typed: str) -> list[str]:
        """Type a line, and return the arguments that the program gets."""
        os.write(self._ours, f"{typed}\n".encode())
        seen, ends = "", time.monotonic() + SECONDS
        while "END" not in seen:
            left = ends - time.monotonic()
            assert left > 0, seen
            if select.select([self._ours], [], [], left)[0]:
                seen += os.read(self._ours, 1 << 16).decode(errors="replace")
        return seen.partition("BEGIN<")[2].partition(">END")[0].split("><")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@pytest.mark.parametrize("shell", START)
def test_tab_completes_commands_flags_values_and_files(shell: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tls.crt").touch()
    (tmp_path / "folder").mkdir()
    terminal = Terminal(shell, tmp_path)
    try:
        for typed, arguments in CASES:
            # zsh joins a flag to its value, and takes the slash of a folder away.
            assert "=".join(terminal.arguments(typed)).rstrip("/") == "=".join(arguments), typed
    finally:
        terminal.close()


@pytest.mark.parametrize("shell", commands.SHELLS)
def test_script_offers_each_flag_of_each_command(shell: str) -> None:
    script = completion.script(shell)
    for command in reference.all_commands():
        for flag in command.flags:
            name = f"-l {flag.name} " if shell == "fish" and len(flag.name) > 1 else flag.option
            assert (f"-s {flag.name} " if shell == "fish" and len(flag.name) == 1 else name) in script


def test_texts_about_the_program_come_without_loading_the_server() -> None:
    code = (
        "import sys; from apiserver import cli; sys.argv = ['sluice', 'completion', 'bash']; cli.main(); "
        "heavy = {'apiserver.app', 'aiohttp', 'redis', 'kubernetes_asyncio', 'cryptography'} & {*sys.modules}; "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
