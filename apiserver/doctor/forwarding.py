"""A way to a pod where the pods' network is not reached: `kubectl port-forward`, as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence

SECONDS = 8.0
"""Until kubectl must say that it listens. It asks kube-apiserver for the pod first."""
_LISTENS = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")


def kubectl(environ: Mapping[str, str]) -> str:
    """Return the path of kubectl, empty without one."""
    return shutil.which("kubectl", path=environ.get("PATH", "")) or ""


def words(program: str, *, kubeconfig: str, context: str, namespace: str, pod: str, port: int) -> list[str]:
    """Return the command. KUBECONFIG names the files, because `--kubeconfig` takes one only."""
    chosen = [f"--context={context}"] if context else []
    forward = [f"--namespace={namespace}", "port-forward", "--address=127.0.0.1", f"pod/{pod}", f":{port}"]
    return ["env", f"KUBECONFIG={kubeconfig}", program, *chosen, *forward]


@contextlib.asynccontextmanager
async def opened(command: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[int]:
    """Run the command until the end. Yield the local port, 0 if kubectl does not forward."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(environ),
    )
    try:
        assert process.stdout is not None
        port = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while line := await process.stdout.readline():
                    if match := _LISTENS.match(line):
                        port = int(match[1])
                        break
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
