"""Wrong starts, as new users make them: each says what is wrong and what to do, without a trace."""

from __future__ import annotations

import pathlib
import socket

import pytest

from apiserver import __main__ as program
from tests.fixtures.authorities import issue

pytestmark = pytest.mark.usefixtures("configured_process")

USERS = issue("users", ca=True)
OURS, OTHERS = issue("ours", USERS), issue("others", USERS)
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []\n"
FILES = {
    "junk": b"junk\n",
    "empty": b"",
    "ours.crt": OURS.pem,
    "ours.key": OURS.key_pem,
    "others.key": OTHERS.key_pem,
    "no-context": b"apiVersion: v1\nkind: Config\n",
    "no-rules": POLICY.encode(),
    "unknown-flag.yaml": b"secure-prot: 1\n",
    "quoted.yaml": b'secure-port: "1"\n',
    "broken.yaml": b"secure-port: [\n",
}
DEV = "dev --data-dir=data"
PAIR = "--tls-cert-file=ours.crt --tls-private-key-file=ours.key"
SERVE = f"serve --standalone --redis-url=redis://h {PAIR}"
ELSEWHERE = "store info --redis-url=redis://127.0.0.1:{closed}"

STARTS = [
    # The command line.
    ("serv", 2, "unknown command serv", "did you mean serve?"),
    ("dev --secure-prot=1", 2, "unknown argument --secure-prot", "did you mean --secure-port?"),
    ("dev --redis-url=redis://h", 2, "unknown argument --redis-url", "it is a flag of `sluice serve`"),
    (f"{DEV} --secure-port=x", 2, "'x' is not a whole number", "use --secure-port PORT: port to listen on"),
    (f"{DEV} --secure-port", 2, "--secure-port: needs a value", "use --secure-port PORT"),
    (f"{DEV} --bind-address=localhost", 2, "'localhost' is not an IP address", "use --bind-address IP"),
    (f"{DEV} --request-timeout=abc", 2, 'invalid duration "abc"', "use --request-timeout DURATION"),
    (f"{DEV} --samples=maybe", 2, "'maybe' is neither true nor false", "use --samples or --no-samples"),
    (f"{DEV} --logging-format=xml", 2, "'xml' must be text or json", "use --logging-format text|json"),
    (f"{DEV} --kinds=no_such_module", 2, "there is no module no_such_module", "use --kinds PACKAGE: installed"),
    (f"{DEV} --group=G", 2, "'G' is not an API group", "a lower-case DNS name with at least one dot"),
    (f"{DEV} --feature-gates=No=true", 2, "unrecognized feature gate: No", "see `sluice dev --help`"),
    (f"{DEV} --emulated-version=1.20", 2, "is not between [1.36, 1.37]", "use --emulated-version MAJOR.MINOR"),
    (
        f"serve {PAIR} --standalone",
        2,
        "--redis-url (or SLUICE_REDIS_URL) is required",
        "use --redis-url URL: the store",
    ),
    (f"serve {PAIR} --redis-url=redis://h", 2, "outside a pod", "--standalone does without a cluster"),
    # Files.
    (f"{DEV} --config=gone.yaml", 2, "there is no file gone.yaml", "use --config FILE: YAML file of flags"),
    (f"{DEV} --config=unknown-flag.yaml", 2, "unknown flag secure-prot", "did you mean secure-port?"),
    (f"{DEV} --config=quoted.yaml", 2, "must be a number, and is a text", "take the quotes away"),
    (f"{DEV} --config=broken.yaml", 2, "broken.yaml: yaml: line ", "see `sluice dev --help`"),
    ("dev --data-dir=junk", 2, "junk cannot be used: it is a file", "name a folder"),
    (f"{DEV} --kubeconfig=folder", 2, "--kubeconfig: folder is a folder", "name a file"),
    (f"{DEV} --kubeconfig=.", 2, "--kubeconfig: . is a folder", "name a file"),
    (f"{DEV} --crds=gone", 2, "there is no file or folder gone", "use --crds FILE|DIR"),
    (f"{DEV} --audit-policy-file=gone --audit-log-path=-", 2, "no such file", "use --audit-policy-file FILE"),
    (f"{DEV} --audit-policy-file=no-rules --audit-log-path=-", 2, "policy with 0 rules", "use --audit-policy-file"),
    ("manifests --ca-file=junk", 2, "--ca-file: ", "use --ca-file FILE: CAs of the serving certificate"),
    # Certificates and kubeconfigs.
    (f"{SERVE} --tls-cert-file=gone", 2, "there is no file gone", "use --tls-cert-file FILE"),
    (f"{SERVE} --tls-cert-file=junk", 2, "no certificate with its key", "use a certificate in PEM form"),
    (f"{SERVE} --tls-private-key-file=others.key", 2, "no certificate with its key", "the private key that belongs"),
    (f"{SERVE} --client-ca-file=junk", 2, "no certificates in PEM form", "between BEGIN CERTIFICATE and END"),
    (
        f"serve {PAIR} --redis-url=redis://h --authorization-kubeconfig=gone",
        2,
        "no file gone",
        "use --authorization-kubeconfig",
    ),
    (
        f"serve {PAIR} --redis-url=redis://h --authorization-kubeconfig=no-context",
        2,
        "current-context",
        "kubectl --kubeconfig",
    ),
    # The network.
    (f"{DEV} --secure-port={{taken}}", 1, "is in use", "choose another port with --secure-port PORT"),
    (f"{DEV} --bind-address=192.0.2.1", 1, "has no address 192.0.2.1", "choose another with --bind-address IP"),
    # The store, and its backups.
    ("store info --redis-url=http://h", 2, "--redis-url: must begin with redis://", "use --redis-url URL"),
    (ELSEWHERE, 1, "no connection to the store", "start the store, or name another one with --redis-url"),
    ("store info --redis-url=unix:///gone", 1, "No such file", "start the store"),
    (
        "store info --redis-url=redis://h --redis-password-file=empty",
        2,
        "empty is empty",
        "the password in its first line",
    ),
    ("store info --redis-url=rediss://h --redis-ca-file=junk", 2, "authorities in junk", "between BEGIN CERTIFICATE"),
    ("store verify gone", 1, "gone: no such file or directory", "name a file that exists"),
    ("store verify .", 1, ".: is a directory", "name a file, not a folder"),
    ("store verify junk", 1, "this is not a backup", "name a file that `sluice store backup` has written"),
    ("store backup junk --redis-url=redis://h", 1, "junk exists already", "name another file"),
]


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("line", "code", "wrong", "remedy"), STARTS, ids=[line for line, *_ in STARTS])
def test_wrong_start_says_what_is_wrong_and_what_to_do(
    line: str, code: int, wrong: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and does not listen
        ports = {"taken": taken.getsockname()[1], "closed": closed.getsockname()[1]}
        assert program.run(line.format(**ports).split(), {}) == code
    errors = capsys.readouterr().err
    assert wrong in errors
    assert remedy in errors
    assert "Traceback" not in errors
    assert [text for text in errors.splitlines() if not text.startswith(("sluice: ", "I", "W"))] == []
