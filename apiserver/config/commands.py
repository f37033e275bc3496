"""The commands of `sluice`: their names, what they do, and examples. Knows no flag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DEV, SERVE, STORE, ROLES, PACKAGES, MANIFESTS = "dev", "serve", "store", "roles", "kinds", "manifests"
DOCTOR, TOP = ASKING = ("doctor", "top")
"""The commands that ask a running installation."""
COMPLETION, MAN, VERSION = PRINTED = ("completion", "man", "version")
"""The commands that print a text about the program itself."""
SHELLS = ("bash", "zsh", "fish")
VERIFY = "verify"
"""The action of `store` that uses no store."""

SUMMARY: dict[str, str] = {
    DEV: "serve one machine, with a store, certificates and a kubeconfig of its own",
    SERVE: "serve a cluster, behind an APIService or directly, with an existing store",
    STORE: "prepare (init), compare (check) or describe (info) the store; move objects into it (import) or out of it (export); "
    "back it up (backup), check a backup (verify) and restore it (restore)",
    ROLES: "print ClusterRoles for the kinds: for users of namespaces, and for controllers that work with the kinds",
    MANIFESTS: "print APIServices, ClusterRoles, Deployment and ConfigMaps for the kinds",
    PACKAGES: "print the errors in the kinds of a package or in CustomResourceDefinitions, or what would be served (check)",
    DOCTOR: "ask an installation everything that can be wrong with it; print each finding with the command that mends it",
    TOP: "show requests, watches, objects and the store of a running server, and keep the page up to date",
    COMPLETION: "print the completion script of a shell",
    MAN: "print the man page",
    VERSION: "print the version, the commit and the time of the build",
}
"""The description of each command, in the order of the help."""

ACTIONS: dict[str, Mapping[str, str]] = {
    STORE: {
        "init": "create what a new store needs, once",
        "check": "compare the store with what it should be",
        "info": "describe the store and its resources",
        "import": "move the objects of a group into the store, from a kube-apiserver or from files",
        "export": "move the objects of the group from the store to a kube-apiserver",
        "backup": "copy the whole store into a file, while it is served",
        "restore": "fill an empty store from a backup",
        VERIFY: "check a backup",
    },
    PACKAGES: {"check": "print the errors in kinds, or what would be served"},
    COMPLETION: {shell: f"print the completion script of {shell}" for shell in SHELLS},
}
"""The description of each action of a command."""
FILE_ACTIONS = ("backup", "restore", VERIFY)
"""The actions of `store` that name a file."""


@dataclass(frozen=True, slots=True)
class Example:
    """A command line, and a sentence that says what it does."""

    does: str
    line: str


_REDIS = "--redis-url redis://valkey.storage:6379"
EXAMPLES: Mapping[str, Sequence[Example]] = {
    DEV: (
        Example("Serve this machine on port 7643.", "sluice dev"),
        Example(
            "Serve the group that drivers use, on any free port, from a new folder.",
            "sluice dev --data-dir /tmp/sluice --secure-port 0 --group resource.k8s.io",
        ),
        Example("Serve your own kinds beside the built-in ones.", "sluice dev --crds crds/"),
        Example("Log each request as JSON.", "sluice dev --logging-format json -v 3"),
    ),
    SERVE: (
        Example(
            "Serve the cluster of the pod in which this runs.",
            f"sluice serve {_REDIS} --tls-cert-file tls.crt --tls-private-key-file tls.key",
        ),
        Example(
            "Serve a cluster from outside of it.",
            f"sluice serve {_REDIS} --tls-cert-file tls.crt --tls-private-key-file tls.key --authorization-kubeconfig kubeconfig",
        ),
        Example(
            "Serve without a cluster; client certificates name the users.",
            f"sluice serve --standalone {_REDIS} --tls-cert-file tls.crt --tls-private-key-file tls.key --client-ca-file users.crt",
        ),
    ),
    f"{STORE} init": (
        Example("Prepare a new store.", f"sluice store init {_REDIS}"),
        Example("Wait for a store that starts at the same time.", f"sluice store init {_REDIS} --wait 2m"),
    ),
    f"{STORE} check": (Example("Print what would keep a server from starting.", f"sluice store check {_REDIS}"),),
    f"{STORE} info": (Example("Print resources, objects and memory.", f"sluice store info {_REDIS}"),),
    f"{STORE} import": (
        Example(
            "Print what would be moved from a kube-apiserver.",
            f"sluice store import {_REDIS} --from-kubeconfig ~/.kube/config --group resource.k8s.io --dry-run",
        ),
        Example(
            "Move the objects of files.",
            f"sluice store import {_REDIS} --from-file dump/ --group resource.k8s.io",
        ),
    ),
    f"{STORE} export": (
        Example(
            "Move all objects to a kube-apiserver that serves the group itself.",
            f"sluice store export {_REDIS} --to-kubeconfig ~/.kube/config --group resource.k8s.io",
        ),
    ),
    f"{STORE} backup": (
        Example("Copy the store into a file.", f"sluice store backup store.backup {_REDIS}"),
        Example("Send the backup through a pipe.", f"sluice store backup - {_REDIS} | ssh backup 'cat > store.backup'"),
    ),
    f"{STORE} restore": (Example("Fill an empty store.", f"sluice store restore store.backup {_REDIS}"),),
    f"{STORE} {VERIFY}": (Example("Check that a backup is whole.", "sluice store verify store.backup"),),
    ROLES: (Example("Create the ClusterRoles.", "sluice roles | kubectl apply -f -"),),
    MANIFESTS: (
        Example(
            "Install the server for your own kinds.",
            "sluice manifests --crds crds/ | kubectl apply --server-side -f -",
        ),
        Example(
            "Print only APIServices and ClusterRoles, with the CA of the serving certificate.",
            "sluice manifests --no-deployment --ca-file ca.crt",
        ),
    ),
    f"{PACKAGES} check": (
        Example("Check CustomResourceDefinitions.", "sluice kinds check crds/lamps.yaml"),
        Example("Check the kinds of a Python package.", "sluice kinds check lamps.kinds"),
    ),
    DOCTOR: (
        Example("Examine the installation in the cluster of kubectl's current context.", "sluice doctor"),
        Example("Print the commands that mend it, for a program.", "sluice doctor --context production -o json"),
    ),
    TOP: (
        Example("Follow a server until Ctrl-C.", "sluice top"),
        Example("Print one page about a server on this machine.", "sluice top --once --kubeconfig .sluice/kubeconfig"),
    ),
    f"{COMPLETION} bash": (
        Example("Complete in this shell; in ~/.bashrc, in every one.", "source <(sluice completion bash)"),
    ),
    f"{COMPLETION} zsh": (
        Example("Complete in this shell; in ~/.zshrc, in every one.", "source <(sluice completion zsh)"),
    ),
    f"{COMPLETION} fish": (
        Example("Complete in every shell.", "sluice completion fish > ~/.config/fish/completions/sluice.fish"),
    ),
    MAN: (
        Example("Read the page.", "sluice man | man -l -"),
        Example("Install the page.", "sluice man > /usr/local/share/man/man1/sluice.1"),
    ),
    VERSION: (Example("Print the version for a program.", "sluice version -o json"),),
}
"""Examples by command, with its action if it has actions."""


def examples(command: str, action: str = "") -> list[Example]:
    """Return the examples of a command, or of one of its actions."""
    name = f"{command} {action}".rstrip()
    found = [each for named, some in EXAMPLES.items() if named == name for each in some]
    return found or [some[0] for named, some in EXAMPLES.items() if named.startswith(f"{name} ")]
