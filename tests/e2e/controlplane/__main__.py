"""`make cluster`: a control plane with Sluice behind it, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import shutil
import signal
import sys
import tempfile

from tests.e2e.controlplane.bed import DRA_GROUP, OWN_GROUP, Bed

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REPLACE = signal.SIGUSR1


def interrupt(*_: object) -> None:
    """The first signal stops everything, in order; further ones would leave something running."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description=(__doc__ or "").partition(":")[2].strip())
    parser.add_argument(
        "--take-over",
        action="store_true",
        help=f"Sluice serves {DRA_GROUP} in place of kube-apiserver, and kube-scheduler allocates devices",
    )
    over = parser.parse_args().take_over
    for number in SIGNALS:
        signal.signal(number, interrupt)
    # `sigwaitinfo` takes one at a time; unlike `sigwait` of glibc it lets other signals interrupt it. Children inherit the mask and do
    # not use the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {REPLACE})
    # Short: the store's socket lies in it, and the path of a socket may have only 107 characters.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-cluster-"))
    say(f"starting etcd, kube-apiserver, kube-controller-manager, Valkey and Sluice in {folder}")
    try:
        with Bed(folder, group=DRA_GROUP if over else OWN_GROUP, controllers=True, scheduler=over) as bed:
            say(f"{bed.apiservice} is available; the logs are in {folder}; Ctrl-C stops everything")
            if over:
                say(f"Sluice serves the group {DRA_GROUP}; kube-apiserver's own is off")
            else:
                say(f"Sluice serves the group {OWN_GROUP}, kube-apiserver its own {DRA_GROUP}, which kubectl prefers:")
                say(f"kubectl get resourceclaims.{OWN_GROUP} asks Sluice, kubectl get resourceclaims kube-apiserver")
            say(f"kill -USR1 {os.getpid()} replaces the process of Sluice by another one")
            print(f"export KUBECONFIG={shlex.quote(str(bed.admin))}", flush=True)
            while signal.sigwaitinfo({REPLACE}):
                bed.replicas[0].replace()
                say("another process of Sluice serves; the former one has ended")
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
