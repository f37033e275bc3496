"""`make cluster`: a control plane with Sluice behind it, until Ctrl-C."""

from __future__ import annotations

import pathlib
import shlex
import shutil
import signal
import sys
import tempfile

from tests.e2e.controlplane.bed import Bed
from tests.e2e.objects import GROUP

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt(*_: object) -> None:
    """The first signal stops everything, in order; further ones would leave something running."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    for number in SIGNALS:
        signal.signal(number, interrupt)
    # Short: the store's socket lies in it, and the path of a socket may have only 107 characters.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-cluster-"))
    say(f"starting etcd, kube-apiserver, kube-controller-manager, Valkey and Sluice in {folder}")
    try:
        with Bed(folder, controllers=True) as bed:
            say(f"{bed.apiservice} is available; the logs are in {folder}; Ctrl-C stops everything")
            say(f"Sluice serves the group {GROUP}, kube-apiserver its own resource.k8s.io, which kubectl prefers:")
            say(f"kubectl get resourceclaims.{GROUP} asks Sluice, kubectl get resourceclaims asks kube-apiserver")
            print(f"export KUBECONFIG={shlex.quote(str(bed.admin))}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        say("stopped")
    except BaseException:
        say(f"the logs are in {folder}")
        raise
    shutil.rmtree(folder)
    return 0


def say(text: str) -> None:
    print(f"cluster: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
