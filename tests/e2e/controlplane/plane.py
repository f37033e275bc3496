"""A Kubernetes control plane as plain processes: etcd, kube-apiserver and, when wanted, its controllers and scheduler.

Everything lies in one folder: certificates, kubeconfigs, data, one log for each process.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
import time
from collections.abc import Callable, Sequence

from tests.e2e.controlplane import binaries, pki
from tests.e2e.controlplane.connection import Connection
from tests.fixtures.processes import Process, free_port

READY_SECONDS = 120.0
MASTERS = "system:masters"
LOOPBACK = "127.0.0.1"
SERVICES = "10.0.0.0/16"
AUTHORIZERS = "Node,RBAC"


class ControlPlane:
    """One cluster. `flags` are added to kube-apiserver's, and win over ours where they name the same. `durable`: what was
    written survives a crash of the machine, which tests do not need and which costs time. `controllers` and `scheduler` say what
    `start_clients` starts, `client_flags` are added to those of both. `address` is where kube-apiserver is reached: on loopback there
    can be no nodes and no pods. `authorizers` are its `--authorization-mode`. `network` are
    the words before each command that put it where that address is."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        flags: Sequence[str] = (),
        controllers: bool = False,
        scheduler: bool = False,
        durable: bool = False,
        address: str = LOOPBACK,
        network: Sequence[str] = (),
        client_flags: Sequence[str] = (),
        authorizers: str = AUTHORIZERS,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.flags = flags
        self.controllers = controllers
        self.scheduler = scheduler
        self.durable = durable
        self.client_flags = client_flags
        self.authorizers = authorizers
        self.address = address
        self.network = network
        self.pki = pki.PKI(folder / "pki", address)
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self.url = f"https://{address}:{self.port}"
        self.etcd_url = f"http://127.0.0.1:{self._etcd_port}"
        self.processes: dict[str, Process] = {}
        self.admin = self.kubeconfig("kubernetes-admin", [MASTERS])

    # Identities

    def kubeconfig(self, name: str, groups: Sequence[str] = ()) -> pathlib.Path:
        """The kubeconfig of a user with a certificate of the cluster's CA."""
        return self._kubeconfig(name, pair=self.pki.cluster.client(name, groups))

    def pair_kubeconfig(self, name: str, pair: pki.Pair) -> pathlib.Path:
        return self._kubeconfig(name, pair=pair)

    def token_kubeconfig(self, name: str, token: str) -> pathlib.Path:
        return self._kubeconfig(name, token=token)

    def service_account(self, namespace: str, name: str) -> pathlib.Path:
        """The kubeconfig of an existing service account, with a fresh token."""
        with self.connect() as admin:
            return self.token_kubeconfig(f"{namespace}.{name}", admin.token(namespace, name))

    def _kubeconfig(self, name: str, *, pair: pki.Pair | None = None, token: str = "") -> pathlib.Path:
        file = self.folder / f"{name.replace(':', '-')}.kubeconfig"
        return pki.kubeconfig(file, self.url, self.pki.cluster.bundle, pair=pair, token=token)

    def connect(self, kubeconfig: pathlib.Path | None = None) -> Connection:
        """As the administrator, unless another is named."""
        return Connection(kubeconfig or self.admin)

    # Life

    def start(self, *, ready: bool = True) -> ControlPlane:
        """`ready` False: returns when kube-apiserver answers, which it does before it is ready."""
        try:
            self.start_etcd()
            self.start_apiserver(ready=ready)
        except BaseException:
            self.stop()
            raise
        return self

    def start_etcd(self) -> None:
        self._start("etcd", self._etcd())

    def start_apiserver(self, *, ready: bool = True) -> None:
        process = self._start("kube-apiserver", self._apiserver())
        path = "/readyz" if ready else "/livez"
        process.until(lambda: self._answers(path), f"{path} is 200", seconds=READY_SECONDS)

    def start_clients(self) -> None:
        """Controllers and scheduler. They look for kinds now, and then every 30 s: what they should know must be discovered before."""
        if self.controllers:
            self._start("kube-controller-manager", self._controller_manager())
        if self.scheduler:
            self._start("kube-scheduler", self._kube_scheduler())

    def restart(self, *flags: str, client_flags: Sequence[str] = ()) -> None:
        """Restart kube-apiserver with these flags, and its clients with those."""
        self.stop_clients()
        self.flags, self.client_flags = flags, client_flags
        self.restart_apiserver()
        self.start_clients()

    def restart_apiserver(self) -> None:
        """Restart kube-apiserver, in the chosen version. Its clients go on."""
        self.kill_apiserver()
        self.start_apiserver()

    def restart_clients(self) -> None:
        """Restart controllers and scheduler, in the chosen version."""
        self.stop_clients()
        self.start_clients()

    def stop_clients(self) -> None:
        for name in self.processes.keys() & {"kube-scheduler", "kube-controller-manager"}:
            self.processes.pop(name).stop()

    def stop_apiserver(self) -> None:
        self.processes.pop("kube-apiserver").stop()

    def kill_apiserver(self) -> None:
        """Kill kube-apiserver, as if its machine had failed. On SIGTERM it would wait a minute for the open watches of others."""
        self.processes.pop("kube-apiserver").stop(signal.SIGKILL)

    def stop(self) -> None:
        """Last started, first stopped."""
        while self.processes:
            _, process = self.processes.popitem()
            process.stop()

    def __enter__(self) -> ControlPlane:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, name: str, command: Sequence[str | pathlib.Path]) -> Process:
        self.processes[name] = Process(
            [*self.network, binaries.binary(name), *command], log=self.folder / f"{name}.log"
        )
        return self.processes[name]

    def _answers(self, path: str) -> bool:
        with contextlib.suppress(OSError), self.connect() as admin:
            return admin.ask("GET", path).status == 200
        return False

    # Command lines

    def _etcd(self) -> list[str]:
        client, peer = self.etcd_url, f"http://127.0.0.1:{self._peer_port}"
        return [
            "--name=bed",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=bed={peer}",
            "--log-level=warn",
            *([] if self.durable else ["--unsafe-no-fsync"]),
        ]

    def _apiserver(self) -> list[str]:
        keys = self.pki
        return [
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={self.address}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={keys.serving.cert}",
            f"--tls-private-key-file={keys.serving.key}",
            f"--client-ca-file={keys.cluster.file}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys.service_accounts}",
            f"--service-account-signing-key-file={keys.service_accounts}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--authorization-mode={self.authorizers}",
            "--enable-admission-plugins=NodeRestriction",
            f"--requestheader-client-ca-file={keys.proxy.file}",
            f"--requestheader-allowed-names={pki.PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-uid-headers=X-Remote-Uid",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={keys.proxy_client.cert}",
            f"--proxy-client-key-file={keys.proxy_client.key}",
            *(self._without_nodes() if self.address == LOOPBACK else self._with_nodes()),
            *self.flags,
        ]

    def _without_nodes(self) -> list[str]:
        return [
            # Must be no loopback address, and need not exist.
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
        ]

    def _with_nodes(self) -> list[str]:
        """Pods reach it by its Service, and it reaches kubelets. Drivers of nodes are privileged, which kubeadm's allows, too."""
        kubelets = self.pki.cluster.client("kube-apiserver-kubelet-client", [MASTERS])
        return [
            f"--advertise-address={self.address}",
            f"--kubelet-client-certificate={kubelets.cert}",
            f"--kubelet-client-key={kubelets.key}",
            f"--kubelet-certificate-authority={self.pki.cluster.file}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
        ]

    def _controller_manager(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('system:kube-controller-manager')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.pki.service_accounts}",
            f"--root-ca-file={self.pki.cluster.file}",
            # Users ask for certificates where nobody else makes them.
            f"--cluster-signing-cert-file={self.pki.cluster.file}",
            f"--cluster-signing-key-file={self.pki.cluster.file.with_suffix('.key')}",
            *self.client_flags,
        ]

    def _kube_scheduler(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('system:kube-scheduler')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            "--leader-elect=false",
            *self.client_flags,
        ]


def until(happens: Callable[[], object], what: str, *, seconds: float = 120.0) -> None:
    """Polls other processes, which cannot be waited for otherwise."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, f"{what} did not come about within {seconds:.0f} s"
        time.sleep(0.02)
