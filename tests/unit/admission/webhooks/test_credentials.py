"""Credentials for calls of webhooks, and messages about unusable files. Texts are those of kube-apiserver 1.36.3."""

from __future__ import annotations

import base64
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.admission.webhooks import credentials
from apiserver.admission.webhooks.calls import Caller, Target
from apiserver.admission.webhooks.credentials import Credentials
from apiserver.serving import pki
from tests.unit.admission.webhooks import hook as plays
from tests.unit.admission.webhooks.hook import NOW, Hook

VALIDATING = "ValidatingAdmissionWebhook"
V1 = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
OLD = "apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration\n"
OWN = "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\n"
NUMBER = "json: cannot unmarshal number into Go struct field "
USERS = "Config.users of type []v1.NamedAuthInfo"
STATIC = "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled"
PLUGINS = "AdmissionConfiguration.plugins of type"
KIND = "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type "
STRUCT = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
UNREGISTERED = 'is registered for version "apiserver.config.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111"'


def inside(text: str, plugin: str = VALIDATING) -> str:
    return f"{V1}plugins:\n- name: {plugin}\n  configuration:\n{textwrap.indent(text, '    ')}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Object 'Kind' is missing in ''"),
        ("junk", KIND + STRUCT),
        ("apiVersion: apiserver.config.k8s.io/v1\nkind: Foo\n", f'no kind "Foo" {UNREGISTERED}'),
        (V1 + "foo: 1\n", 'strict decoding error: unknown field "foo"'),
        (V1 + "plugins:\n- name: x\n  foo: 1\n", 'strict decoding error: unknown field "plugins[0].foo"'),
        (V1 + "plugins: [1]\n", f"{NUMBER}{PLUGINS} v1.AdmissionPluginConfiguration"),
        (OLD + "plugins: 3\n", f"{NUMBER}{PLUGINS} []v1alpha1.AdmissionPluginConfiguration"),
    ],
)  # fmt: skip
def test_file_that_is_no_configuration_is_reported(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "admission.yaml"
    file.write_text(text)
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        credentials.load(str(file))
    assert str(refused.value) == f"failed to read plugin config: {words}"


def test_missing_file_is_reported() -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        credentials.load("/nosuch.yaml")
    assert str(refused.value) == (
        'failed to read plugin config: unable to read admission control configuration from "/nosuch.yaml" '
        "[open /nosuch.yaml: no such file or directory]"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b\n", "Object 'Kind' is missing in '{\"a\":\"b\"}'"),
        ("apiVersion: apiserver.config.k8s.io/v1\nkind: Foo\n", f'no kind "Foo" {UNREGISTERED}'),
        (OWN + "foo: x\n", 'strict decoding error: unknown field "foo"'),
        (OWN + "kubeConfigFile: 3\n", NUMBER + "WebhookAdmission.kubeConfigFile of type string"),
        (OWN + "kubeConfigFile: x\n", 'kubeConfigFile: Invalid value: "x": must be an absolute file path'),
        (OWN + "kubeConfigFile: /nosuch\n", "stat /nosuch: no such file or directory"),
        (OWN + "staticManifestsDir: /tmp\n", f"staticManifestsDir: Forbidden: {STATIC}"),
        (OWN + "kubeConfigFile: FOLDER/number\n", f'error loading config file "FOLDER/number": {NUMBER}{USERS}'),
        (OWN + "kubeConfigFile: FOLDER/junk\n", f'error loading config file "FOLDER/junk": {KIND}{STRUCT}'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("plugin", credentials.WEBHOOK_PLUGINS)
def test_configuration_that_a_plugin_cannot_use_is_reported(plugin: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "number").write_text("apiVersion: v1\nkind: Config\nusers: 3\n")
    (tmp_path / "junk").write_text("junk\n")
    file = tmp_path / "admission.yaml"
    file.write_text(inside(text.replace("FOLDER", str(tmp_path)), plugin))
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        credentials.load(str(file))
    expected = words.replace("FOLDER", str(tmp_path))
    assert str(refused.value) == f'couldn\'t init admission plugin "{plugin}": {expected}'


def loaded(folder: Path, users: dict[str, Any], current: str = "") -> Credentials:
    """Written to files, and read again: the kubeconfig in a file that the first file's plugin names in a third one."""
    kubeconfig: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": current}}],
        "current-context": "here",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    (folder / "own.yaml").write_text(f"{OWN}kubeConfigFile: {folder}/kubeconfig\n")
    (folder / "admission.yaml").write_text(f"{V1}plugins:\n- name: {VALIDATING}\n  path: own.yaml\n")
    found = credentials.load(str(folder / "admission.yaml"))
    assert found.credentials("MutatingAdmissionWebhook") == Credentials()
    return found.credentials(VALIDATING)


@pytest.mark.parametrize(
    ("host", "port", "name"),
    [
        ("a.space.svc", 443, "a.space.svc:443"),
        ("b.space.svc", 443, "*.space.svc:443"),
        ("b.other.svc", 443, "*.svc:443"),
        ("c.example.com", 443, "c.example.com"),
        ("d.example.com", 443, "*.example.com"),
        ("c.example.com", 8443, "*.com:8443"),
        ("elsewhere", 443, "*"),
    ],
)
def test_the_user_with_the_best_name_for_a_host_calls_it(host: str, port: int, name: str, tmp_path: Path) -> None:
    names = ["a.space.svc:443", "*.space.svc:443", "*.svc:443", "c.example.com", "*.example.com", "*.com:8443", "*"]
    found = loaded(tmp_path, {each: {"token": each} for each in names})
    assert found.of(host, port).headers() == [("Authorization", f"Bearer {name}")]


def test_credentials_without_a_star_use_the_current_context_then_none(tmp_path: Path) -> None:
    basic = base64.b64encode(b"me:secret").decode()
    found = loaded(tmp_path, {"me": {"username": "me", "password": "secret", "as": "you", "as-groups": ["g"]}}, "me")
    assert found.of("any", 1).headers() == [
        ("Impersonate-User", "you"),
        ("Impersonate-Group", "g"),
        ("Authorization", f"Basic {basic}"),
    ]
    assert loaded(tmp_path, {"me": {"token": "x"}}).of("any", 1).headers() == []


async def test_a_webhook_sees_the_users_certificate_and_token(hook: Hook, tmp_path: Path) -> None:
    pair = pki.make_client(hook.ca, "admission", groups=[], now=NOW)
    (tmp_path / "pair.crt").write_bytes(pair.cert_pem)
    (tmp_path / "pair.key").write_bytes(pair.key_pem)
    (tmp_path / "token").write_text("secret\n")
    user = {"client-certificate": "pair.crt", "client-key": "pair.key", "tokenFile": "token"}
    caller = Caller(loaded(tmp_path, {f"127.0.0.1:{hook.port}": user}))
    hook.plays = [plays.answer("{}")]
    assert await caller.call(Target.of(hook.config()), b"{}", seconds=10) == b"{}"
    assert (hook.seen[0].subject, hook.seen[0].headers["Authorization"]) == ("admission", "Bearer secret")
    await caller.close()
