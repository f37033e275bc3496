"""The real kubectl, run as its users run it."""

from __future__ import annotations

import os
import pathlib
import subprocess

from tests.e2e.controlplane import binaries

SECONDS = 120.0


def run(
    *words: str, kubeconfig: pathlib.Path, home: pathlib.Path, stdin: str = "", check: bool = True, **environ: str
) -> subprocess.CompletedProcess[str]:
    """With `check`, an AssertionError shows why kubectl failed. `home` keeps its caches."""
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [binaries.kubectl(), *words],
        input=stdin,
        text=True,
        capture_output=True,
        check=False,
        timeout=SECONDS,
        env={"KUBECONFIG": str(kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"], **environ},
    )
    if check and done.returncode != 0:
        raise AssertionError(f"kubectl {' '.join(words)} ended with {done.returncode}: {done.stderr}{done.stdout}")
    return done
