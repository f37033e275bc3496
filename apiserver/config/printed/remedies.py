"""Say what to do about an error, where its own text does not."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping

from apiserver.config import config
from apiserver.config.flags import Flag

MOST = 10
"""Remedies that are printed after the errors of one start: more would push the errors out of sight."""

_FILES: Mapping[int, str] = {
    errno.ENOENT: "name a file that exists, in a folder that exists",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "name a folder, not a file",
    errno.EEXIST: "name another one",
    errno.EACCES: "let this user read and write it, or name another one",
    errno.EPERM: "let this user read and write it, or name another one",
    errno.EROFS: "name a place that can be written",
    errno.ENOSPC: "free some space, or name a place on another disk",
    errno.EDQUOT: "free some space, or name a place on another disk",
}
_START = (
    "start the store, or name another one with --redis-url; `sluice store … --wait 1m` waits for a store that starts"
)
_KUBECONFIG = "check the kubeconfig with `kubectl --kubeconfig FILE get --raw /readyz`"
_TEXTS: tuple[tuple[str, str], ...] = (
    (
        r"NOAUTH|WRONGPASS",
        "give the store's user and password in --redis-url, or the password in --redis-password-file",
    ),
    (r"NOPERM", "give the store's user the rights that docs/storage.md lists"),
    (r"store.*(SSL|certificate verify failed)", "name the authorities of the store's certificate with --redis-ca-file"),
    (r"no connection to the store|no majority of the|no node of the cluster answers", _START),
    (r"not a backup|backup is (cut|damaged)", "name a file that `sluice store backup` has written"),
    (r"are no certificate with its key", "a certificate in PEM form and the private key that belongs to it"),
    (r"no certificates in PEM form", "a file with certificates between BEGIN CERTIFICATE and END CERTIFICATE"),
    (r"the password file .* is empty", "a file with the password in its first line"),
    (r"authorities in .* cannot be used", "a file with certificates between BEGIN CERTIFICATE and END CERTIFICATE"),
    (
        r"the certificate .* with the key .* cannot be used",
        "--redis-cert-file with the --redis-key-file that belongs to it",
    ),
    (
        r"current-context|cannot be used: .*(context|cluster|user)",
        f"a kubeconfig with a current context; {_KUBECONFIG}",
    ),
)
"""Remedies by a pattern in the text of an error."""


def of_failure(error: Exception) -> str:
    """Return the text of a failure, with the remedy."""
    if isinstance(error, OSError) and error.filename is not None:
        why = (error.strerror or str(error)).lower()
        return f"{error.filename}: {why}: {_FILES.get(error.errno or 0, 'name another one')}"
    text = str(error)
    remedy = _by_text(text) or (_KUBECONFIG if "kube-apiserver" in text else "")
    return f"{text}: {remedy}" if remedy and remedy not in text else text


def of_errors(errors: Iterable[str]) -> list[str]:
    """Return what to use instead, for the errors of a configuration: each flag by its help, other things by their texts."""
    found = dict.fromkeys(remedy for error in errors for remedy in _of_error(error))
    return [*found][:MOST]


def _of_error(error: str) -> Iterator[str]:
    if remedy := _by_text(error):
        yield f"use {remedy}"
        return
    if "unknown argument" in error or "did you mean" in error:
        return
    for flag in config.FLAGS:
        if re.match(rf"({re.escape(flag.option)}|{flag.variable}|\S+: {re.escape(flag.name)})[\s:=\[.]", error):
            yield f"use {_usage(flag)}"
            return


def _usage(flag: Flag) -> str:
    form = f"{flag.option} or --no-{flag.name}" if flag.switch else f"{flag.option} {flag.value}"
    return f"{form}: {re.split(';', flag.text)[0]}"


def _by_text(text: str) -> str:
    return next((remedy for pattern, remedy in _TEXTS if re.search(pattern, text)), "")
