"""The configuration file: names of flags, read strictly, below the command line and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from apiserver.config import config, config_file


def parsed(folder: Path, text: str, *argv: str, **environ: str) -> config.Config:
    file = folder / "sluice.yaml"
    file.write_text(text)
    return config.parse(["dev", "--config", str(file), *argv], environ)


def errors(folder: Path, text: str, *argv: str, command: str = "dev") -> list[str]:
    """The errors, without the path of the file."""
    file = folder / "sluice.yaml"
    file.write_text(text)
    with pytest.raises(config.ConfigError) as caught:
        config.parse([command, "--config", str(file), *argv], {})
    return [error.replace(f"{file}: ", "", 1) for error in caught.value.errors]


def test_each_form_of_value_is_that_of_the_command_line(tmp_path: Path) -> None:
    found = parsed(
        tmp_path,
        """
secure-port: 7000
request-timeout: 30s
samples: false
enable-admission-plugins: [OwnerReferencesPermissionEnforcement]
disable-admission-plugins: ResourceQuota,NodeRestriction
feature-gates: {A: true, B: false}
runtime-config:
  api/beta: true
  resource.sluice.dev/v1beta1: "false"
emulated-version: "1.36"
v: 3
audit-webhook-batch-throttle-qps: 2.5
""",
    )
    assert (found.serving.secure_port, found.limits.request_seconds, found.dev.samples) == (7000, 30, False)
    assert found.admission.enabled == ("OwnerReferencesPermissionEnforcement",)
    assert found.admission.disabled == ("ResourceQuota", "NodeRestriction")
    assert found.serving.feature_gates == {"A": True, "B": False}
    assert found.serving.runtime_config == {"api/beta": "true", "resource.sluice.dev/v1beta1": "false"}
    assert (str(found.serving.emulated), found.logging.verbosity) == ("1.36", 3)
    assert found.audit.webhook.batch.throttle_qps == 2.5


def test_command_line_wins_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    text = "secure-port: 1\nv: 1\nrequest-timeout: 1s"
    found = parsed(tmp_path, text, "--secure-port=3", SLUICE_SECURE_PORT="2", SLUICE_V="2")
    assert (found.serving.secure_port, found.logging.verbosity, found.limits.request_seconds) == (3, 2, 1)
    assert {name: found.live.shown[name] for name in ("secure-port", "v", "request-timeout")} == {
        "secure-port": "3", "v": "2", "request-timeout": "1s",
    }  # fmt: skip


def test_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text("v: 5")
    assert config.parse(["dev"], {"SLUICE_CONFIG": str(file)}).logging.verbosity == 5


def test_serve_takes_required_flags_from_the_file(tmp_path: Path) -> None:
    pem, file = tmp_path / "x.pem", tmp_path / "sluice.yaml"
    pem.touch()
    file.write_text(
        yaml.safe_dump(
            {
                "redis-url": "redis://u:hunter2@h",
                "tls-cert-file": str(pem),
                "tls-private-key-file": str(pem),
                "standalone": True,
            }
        )
    )
    found = config.parse(["serve", f"--config={file}"], {})
    assert found.storage.redis_url == "redis://u:hunter2@h"
    assert found.live.shown["redis-url"] == "CLASSIFIED"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("secure-prot: 1", "unknown flag secure-prot: did you mean secure-port?"),
        ("--secure-port: 1", "unknown flag --secure-port: did you mean secure-port?"),
        ("SLUICE_SECURE_PORT: 1", "unknown flag SLUICE_SECURE_PORT: did you mean secure-port?"),
        ("zzzzzz: 1", "unknown flag zzzzzz"),
        (
            "redis-url: redis://h",
            "redis-url: is a flag of `sluice serve` and `sluice store` and `sluice doctor`, not of `sluice dev`",
        ),
        ("config: x", "config: a configuration file names no other: move the flags of both into one file"),
        ('secure-port: "1"', "secure-port: must be a number, and is a text: take the quotes away"),
        ("secure-port: [1]", "secure-port: must be a number, and is a list"),
        ("secure-port: 70000", "secure-port: 70000 is not between 0 and 65535"),
        ("secure-port: 1.5", "secure-port: '1.5' is not a whole number"),
        ("secure-port:", "secure-port: must be a number, and is empty"),
        ("request-timeout: 60", "request-timeout: must be a text, and is a number: write it in quotes"),
        ("emulated-version: 1.36", "emulated-version: must be a text, and is a number: write it in quotes"),
        ('samples: "no"', "samples: must be true or false, and is a text: take the quotes away"),
        ("samples: 1", "samples: must be true or false, and is a number"),
        ("kinds: [json, 3]", "kinds[1]: must be a text, and is a number: write it in quotes"),
        ("feature-gates: {A: [x]}", "feature-gates.A: must be true or false or a text, and is a list"),
        ("kinds: {a: b}", "kinds: must be a text, and is a map"),
        ("logging-format: xml", "logging-format: 'xml' must be text or json"),
        ("[1]", "must be a map of flags, such as `secure-port: 7643`, and is a list"),
        ("v: 1\n---\nv: 2", "holds several documents: write all flags into one"),
        (
            f"# {'x' * config_file.MOST_BYTES}",
            f"is larger than {config_file.MOST_BYTES} bytes: a configuration file holds only flags",
        ),
    ],
)
def test_error_names_the_file_the_key_and_the_remedy(tmp_path: Path, text: str, error: str) -> None:
    assert errors(tmp_path, text) == [error]


def test_repeated_keys_and_bad_syntax_name_their_line(tmp_path: Path) -> None:
    [repeated] = errors(tmp_path, "v: 1\nsecure-port: 1\nv: 2")
    assert repeated == 'line 3: key "v" already set in map: write each flag once'
    [bad] = errors(tmp_path, "v: 1\na: [")
    assert bad.startswith("yaml: line ")


def test_all_errors_of_file_and_flags_come_at_once(tmp_path: Path) -> None:
    assert errors(tmp_path, "v: x\nnope: 1\nsecure-port: -1", "--group=G") == [
        "unknown flag nope",
        "v: must be a number, and is a text: take the quotes away",
        "secure-port: -1 is not between 0 and 65535",
        "--group: 'G' is not an API group: a lower-case DNS name with at least one dot",
    ]


def test_missing_file_is_an_error_once(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError) as caught:
        config.parse(["dev", f"--config={tmp_path}/gone"], {})
    assert caught.value.errors == [f"--config: there is no file {tmp_path}/gone"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\nv: 0\n", "{}"])
def test_file_may_be_empty_or_begin_with_a_document_line(tmp_path: Path, text: str) -> None:
    assert parsed(tmp_path, text).logging.verbosity == 0


def test_every_flag_of_a_server_can_stand_in_the_file() -> None:
    for command in config.SERVERS:
        for flag in config.FLAGS:
            if command not in flag.commands or flag.name == config_file.CONFIG:
                continue
            default = flag.default_for(command) or ""
            value: object = default == "true" if flag.switch else int(default) if flag.number else default
            assert config_file._text(flag, flag.name, value) == (
                ("true" if value else "false") if flag.switch else default
            )
