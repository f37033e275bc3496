"""Flags, their environment twins, and messages about errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from apiserver.config import config, parsers


def mistakes(*argv: str, **environ: str) -> list[str]:
    with pytest.raises(config.ConfigError) as caught:
        config.parse(argv, environ)
    return caught.value.errors


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def minimal(folder: Path) -> list[str]:
    """Flags that `serve` requires in a pod."""
    pem = folder / "x.pem"
    pem.touch()
    return ["serve", "--tls-cert-file", str(pem), "--tls-private-key-file", str(pem), "--redis-url", "redis://h"]


def serve(folder: Path, *argv: str) -> config.Config:
    """The configuration of `serve` in a pod."""
    return config.parse([*minimal(folder), *argv], POD)


def test_dev_needs_no_flag_at_all() -> None:
    c = config.parse(["dev"], {})
    assert (c.serving.bind_address, c.serving.secure_port, c.serving.group) == (
        "127.0.0.1",
        7643,
        "resource.sluice.dev",
    )
    assert c.dev.data_dir == Path("./.sluice")
    assert c.dev.kubeconfig == Path("./.sluice/kubeconfig")
    assert c.dev.samples
    assert (c.limits.request_seconds, c.limits.watch_seconds) == (60, 1800)
    assert (c.limits.in_flight, c.limits.mutating_in_flight, c.limits.watches) == (400, 200, 10_000)
    assert (c.shutdown.delay_seconds, c.shutdown.watch_seconds) == (0, 0)


def test_the_kubeconfig_stands_in_the_data_folder_unless_said_otherwise() -> None:
    assert config.parse(["dev", "--data-dir", "/d"], {}).dev.kubeconfig == Path("/d/kubeconfig")
    assert config.parse(["dev", "--data-dir", "/d", "--kubeconfig", "/k"], {}).dev.kubeconfig == Path("/k")


def test_every_flag_has_an_environment_twin_and_the_command_line_wins() -> None:
    assert config.parse(["dev"], {"SLUICE_SECURE_PORT": "7000"}).serving.secure_port == 7000
    assert config.parse(["dev", "--secure-port=0"], {"SLUICE_SECURE_PORT": "7000"}).serving.secure_port == 0
    assert config.parse(["dev"], {"SLUICE_V": "3"}).logging.verbosity == 3
    assert not config.parse(["dev"], {"SLUICE_SAMPLES": "false"}).dev.samples
    assert {f.variable for f in config.FLAGS} >= {"SLUICE_REDIS_URL", "SLUICE_LOGGING_FORMAT"}


@pytest.mark.parametrize(
    ("argv", "samples"),
    [
        (["--samples"], True),
        (["--no-samples"], False),
        (["--samples=false"], False),
        (["--no-samples", "--samples"], True),
    ],
)
def test_a_switch_has_an_on_and_an_off_form(argv: list[str], samples: bool) -> None:
    assert config.parse(["dev", *argv], {}).dev.samples is samples


def test_all_errors_are_reported_at_once() -> None:
    told = mistakes("serve", "--secure-port", "70000", "--nonsense", "--group", "Nope", SLUICE_REDIS_URL="http://x")
    assert [m.partition(":")[0] for m in told] == [
        "unknown argument --nonsense",
        "--secure-port",
        "--group",
        "--tls-cert-file (or SLUICE_TLS_CERT_FILE) is required",
        "--tls-private-key-file (or SLUICE_TLS_PRIVATE_KEY_FILE) is required",
        "SLUICE_REDIS_URL",
        "outside a pod --authentication-kubeconfig or --authorization-kubeconfig is required (--standalone does without a cluster)",
    ]


def test_priority_and_fairness_needs_seats() -> None:
    none = ["dev", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0"]
    with pytest.raises(config.ConfigError, match="they must add up to something positive"):
        config.parse(none, {})
    assert not config.parse([*none, "--no-enable-priority-and-fairness"], {}).limits.fair
    assert config.parse(none[:2], {}).limits.fair


def test_durability_of_all_needs_servers_that_know_the_replicas() -> None:
    def told(url: str, durability: str) -> list[str]:
        found = mistakes("serve", "--redis-url", url, "--store-durability", durability, "--standalone")
        return [line for line in found if "durability" in line]

    [one] = told("redis://h", "all")
    assert "name its sentinels" in one
    [unknown] = told("redis://h", "most")
    assert "must be primary, replica or all" in unknown
    assert told("redis+sentinel://h:1,i:2/main", "all") == told("redis://h", "replica") == []


def test_admission_plugins_are_switched_by_the_names_of_their_classes() -> None:
    enable, disable = "--enable-admission-plugins", "--disable-admission-plugins"

    def asked(*flags: str) -> list[str]:
        admission = config.parse(["dev", *flags], {}).admission
        return [name for name in parsers.PLUGINS if admission.asks(name)]

    off = "OwnerReferencesPermissionEnforcement"
    assert asked() == [name for name in parsers.PLUGINS if name != off]
    assert asked(enable, off) == list(parsers.PLUGINS)
    assert asked(enable, "NodeRestriction") == asked(disable, off) == asked()
    both = asked(disable, "NodeRestriction", disable, "NamespaceLifecycle")
    assert both == [name for name in asked() if name not in ("NodeRestriction", "NamespaceLifecycle")]
    assert mistakes("dev", disable, "NodeRestriction,Nothing", enable, "no") == [
        f'{enable}: plugin "no" is unknown',
        f'{disable}: plugin "Nothing" is unknown',
    ]
    assert mistakes("dev", disable, "ResourceQuota,NodeRestriction", enable, "NodeRestriction,ResourceQuota") == [
        "[NodeRestriction ResourceQuota] in enable-admission-plugins and disable-admission-plugins overlapped"
    ]


def test_old_or_unknown_tls_version_is_an_error() -> None:
    for version in ("VersionTLS11", "1.3"):
        told = mistakes("serve", "--tls-min-version", version)
        assert f"--tls-min-version: {version!r} is neither VersionTLS12 nor VersionTLS13" in told


def test_unknown_cipher_suite_is_an_error() -> None:
    told = mistakes(
        "serve",
        "--tls-cipher-suites",
        "TLS_NO,TLS_AES_128_GCM_SHA256",
        "--tls-cipher-suites",
        "TLS_RSA_WITH_RC4_128_SHA",
    )
    assert {line for line in told if "cipher" in line} == {
        "--tls-cipher-suites: Cipher suite TLS_NO not supported or doesn't exist",
        "--tls-cipher-suites: Cipher suite TLS_RSA_WITH_RC4_128_SHA not supported or doesn't exist",
    }


def test_a_pair_for_some_names_needs_two_files_and_a_name_behind_its_colon(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    pair = f"{tmp_path}/a,{tmp_path}/a"
    told = mistakes(
        "serve",
        *(
            word
            for text in ("x", "x,y,z:n", f"{pair}:", f"{tmp_path}/a,/none")
            for word in ("--tls-sni-cert-key", text)
        ),
    )
    assert [line for line in told if "sni" in line] == [
        "--tls-sni-cert-key: expected comma separated certificate and key file paths",
        "--tls-sni-cert-key: expected comma separated certificate and key file paths",
        "--tls-sni-cert-key: empty names list is not allowed",
        "--tls-sni-cert-key: there is no file /none",
    ]
    told = mistakes("serve", SLUICE_TLS_SNI_CERT_KEY=f"{pair};{pair}:b,c; {pair} : d ")
    assert not [line for line in told if "SNI" in line]


def test_error_in_the_store_url_does_not_show_the_password() -> None:
    assert "hunter2" not in "\n".join(mistakes("store", "info", SLUICE_REDIS_URL="http://u:hunter2@host"))
    for url in ("redis://u:hunter2@host:port", "redis+sentinel://u:hunter2@h,k:x/m", "redis+cluster://u:hunter2@h:x"):
        assert "hunter2" not in "\n".join(mistakes("store", "info", "--redis-url", url))


@pytest.mark.parametrize(
    "url",
    ["redis://h", "rediss://u:p@h:1/2", "unix:///run/valkey.sock?db=0", "valkey://h", "valkeys://u:p@h:1/2"]
    + [f"{scheme}+sentinel://u:p@h:1,[::1]:2,k/main?db=1" for scheme in ("redis", "rediss", "valkey", "valkeys")]
    + [
        f"{scheme}+cluster://u:p@h:1,[::1]:2,k{end}"
        for scheme in ("redis", "valkeys")
        for end in ("", "/", "/0", "?db=0")
    ],
)
def test_forms_of_a_store_url_are_taken(url: str) -> None:
    assert config.parse(["store", "init", "--redis-url", url], {}).storage.redis_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:6379",
        "redis://",
        "unix://",
        "http://h",
        "redis://h,k",
        "redis://h:1,k:2/0",
        "unix+sentinel:///s/main",
        "redis+x://h",
        "redis+sentinel://h",
        "redis+sentinel://h:1,k:x/main",
        "redis+sentinel://h,,k/main",
        "redis+sentinel:///main",
        "redis+sentinel://h/main?db=x",
        "redis+cluster://",
        "redis+cluster://h,,k",
        "redis+cluster://h:1,k:x",
        "redis+cluster://h/1",
        "redis+cluster://h/main",
        "valkeys+cluster://h?db=1",
        "unix+cluster:///s",
    ],
)
def test_other_store_urls_are_errors(url: str) -> None:
    assert mistakes("store", "init", "--redis-url", url)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.touch()
    told = mistakes(
        "serve",
        "--standalone",
        "--tls-cert-file",
        str(pem),
        "--tls-private-key-file",
        str(tmp_path / "gone"),
        "--redis-url",
        "redis://h",
    )
    assert told == [f"--tls-private-key-file: there is no file {tmp_path / 'gone'}"]


def test_lists_may_be_repeated_or_separated_by_commas(tmp_path: Path) -> None:
    c = serve(
        tmp_path, "--requestheader-allowed-names", "a,b", "--requestheader-allowed-names", "c",
        "--requestheader-uid-headers", "X-Remote-Uid",
    )  # fmt: skip
    header = c.authentication.request_header
    assert header.allowed_names == ("a", "b", "c")
    assert header.uid_headers == ("x-remote-uid",)
    assert header.username_headers == ("x-remote-user",)
    assert header.group_headers == ("x-remote-group",)
    assert header.extra_prefixes == ("x-remote-extra-",)
    assert c.shutdown.delay_seconds == 10


# ------------------------------------------------------------------------------------------------ what is asked of the cluster


def test_service_account_of_the_pod_asks_and_cache_times_are_upstreams(tmp_path: Path) -> None:
    d = serve(tmp_path).delegation
    assert not d.standalone
    assert (d.authentication_kubeconfig, d.authorization_kubeconfig) == ("", "")
    assert (d.skip_lookup, d.tolerate_lookup_failure) == (False, False)
    assert (d.token_seconds, d.allow_seconds, d.deny_seconds) == (10, 10, 10)
    assert d.always_allowed == ("/healthz", "/readyz", "/livez")


@pytest.mark.parametrize("given", ["authentication", "authorization"])
def test_one_kubeconfig_serves_both_purposes(tmp_path: Path, given: str) -> None:
    file = str(tmp_path / "x.pem")
    d = config.parse([*minimal(tmp_path), f"--{given}-kubeconfig", file], {}).delegation
    assert (d.authentication_kubeconfig, d.authorization_kubeconfig) == (file, file)


def test_two_kubeconfigs_are_kept_apart(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    words = ["--authentication-kubeconfig", str(tmp_path / "x.pem"), "--authorization-kubeconfig", str(other)]
    d = config.parse([*minimal(tmp_path), *words], {}).delegation
    assert (d.authentication_kubeconfig, d.authorization_kubeconfig) == (str(tmp_path / "x.pem"), str(other))


@pytest.mark.parametrize("environ", [{}, {"KUBERNETES_SERVICE_HOST": "h"}, {**POD, "KUBERNETES_SERVICE_PORT": ""}])
def test_outside_a_pod_a_user_or_anonymity_must_be_named(tmp_path: Path, environ: dict[str, str]) -> None:
    [told] = mistakes(*minimal(tmp_path), **environ)
    assert "--authentication-kubeconfig" in told
    assert "--standalone" in told
    assert config.parse([*minimal(tmp_path), "--standalone"], environ).delegation.standalone


def test_missing_kubeconfig_is_reported_once(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    assert mistakes(*minimal(tmp_path), "--authentication-kubeconfig", gone) == [
        f"--authentication-kubeconfig: there is no file {gone}"
    ]


def test_alone_and_with_a_cluster_is_a_contradiction(tmp_path: Path) -> None:
    words = ["--standalone", "--authorization-kubeconfig", str(tmp_path / "x.pem")]
    assert mistakes(*minimal(tmp_path), *words) == ["--authorization-kubeconfig: --standalone asks no cluster"]


def test_dev_and_store_ask_no_cluster(tmp_path: Path) -> None:
    assert config.parse(["dev"], POD).delegation.standalone
    assert config.parse(["store", "info", "--redis-url", "redis://h"], POD).delegation.standalone
    assert config.parse(["dev"], POD).alone
    assert config.parse(["store", "init", "--redis-url", "redis://h"], POD).alone
    assert not config.parse(["store", "check", "--redis-url", "redis://h"], POD).alone
    assert not config.parse(["roles"], POD).alone
    assert config.parse(["dev"], {}).delegation.always_allowed == ("/healthz", "/readyz", "/livez")


def test_paths_may_be_prefixes_but_no_patterns(tmp_path: Path) -> None:
    d = serve(
        tmp_path, "--authorization-always-allow-paths", "/healthz*,livez", "--authorization-always-allow-paths", "/"
    )
    assert d.delegation.always_allowed == ("/healthz*", "livez", "/")
    [told] = mistakes(*minimal(tmp_path), "--authorization-always-allow-paths", "/a*b", **POD)
    assert told == '--authorization-always-allow-paths: only trailing * allowed in "a*b"'


def test_the_uid_header_is_the_standard_one_or_none(tmp_path: Path) -> None:
    [told] = mistakes(*minimal(tmp_path), "--requestheader-uid-headers", "X-Uid", **POD)
    assert told.startswith("--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header")
    assert serve(
        tmp_path, "--requestheader-uid-headers", "X-Uid,x-remote-UID"
    ).authentication.request_header.uid_headers


def test_flags_of_another_command_are_unknown() -> None:
    assert mistakes("dev", "--redis-url", "redis://h") == [
        "unknown argument --redis-url: it is a flag of `sluice serve` and `sluice store` and `sluice doctor`",
        "unknown argument redis://h",
    ]


def test_a_command_is_required() -> None:
    assert mistakes("--nonsense")
    assert mistakes("frobnicate")
    assert mistakes("store", "--redis-url", "redis://h")
    assert mistakes("store", "frobnicate")


def test_the_store_commands_say_which() -> None:
    assert config.parse(["store", "check", "--redis-url", "redis://h"], {}).action == "check"


@pytest.mark.parametrize("argv", [["--help"], ["dev", "--help"], ["serve", "--help"], ["store", "--help"]])
def test_help_is_printed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        config.parse(argv, {})
    assert caught.value.code == 0
    assert "usage: sluice" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ([], "usage: sluice [-h]"),
        (["--help"], "usage: sluice [-h]"),
        (["dev", "--help"], "usage: sluice dev [-h]"),
        (["serve", "-h"], "usage: sluice serve [-h]"),
        (["store"], "usage: sluice store [-h]"),
        (["store", "--help"], "usage: sluice store [-h]"),
        (["store", "init", "--help"], "usage: sluice store init [-h]"),
        (["store", "info", "--redis-url", "nonsense", "--help"], "usage: sluice store info [-h]"),
    ],
)
def test_help_flag_prints_the_help(words: list[str], usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        config.parse(words, {"SLUICE_SECURE_PORT": "nonsense"})
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert (shown.out.startswith(usage), shown.err) == (True, "")


def test_help_lists_every_flag_and_its_twin(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (config.DEV, config.SERVE, config.STORE, config.ROLES, config.PACKAGES, config.MANIFESTS):
        with pytest.raises(SystemExit):
            config.parse([command, "--help"], {})
        words = set(capsys.readouterr().out.replace("]", " ").replace("[", " ").split())
        for flag in config.FLAGS:
            assert (flag.option in words) == (flag.variable in words) == (command in flag.commands), flag.name


@pytest.mark.parametrize(
    ("action", "own"),
    [
        ("init", {"wait"}),
        ("check", {"wait"}),
        ("info", {"wait"}),
        ("import", {"from-kubeconfig", "from-file", "dry-run", "max-object-bytes"}),
        ("export", {"to-kubeconfig", "prune", "dry-run"}),
        ("backup", {"only"}),
        ("restore", {"only", "dry-run"}),
        ("verify", set()),
    ],
)
def test_help_of_an_action_of_the_store_has_only_flags_that_it_takes(
    action: str, own: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        config.parse(["store", action, "--help"], {})
    words = set(capsys.readouterr().out.replace("]", " ").replace("[", " ").split())
    for flag in config.FLAGS:
        taken = config.STORE in flag.commands and (not flag.actions or flag.name in own)
        assert (flag.option in words) == (flag.variable in words) == taken, flag.name


@pytest.mark.parametrize("action", ["backup", "restore", "verify"])
@pytest.mark.parametrize("file", ["store.backup", "-"])
def test_file_of_a_backup_stands_before_or_behind_flags(action: str, file: str) -> None:
    flag = "--redis-url=redis://h"
    for words in ([file, flag], [flag, file]):
        assert config.parse(["store", action, *words], {}).file == file


def test_verify_needs_no_store_and_the_others_a_file() -> None:
    assert config.parse(["store", "verify", "x"], {}).file == "x"
    assert mistakes("store", "verify") == ["store verify: a FILE is required, or -"]
    assert mistakes("store", "backup", "x") == ["--redis-url (or SLUICE_REDIS_URL) is required"]
    assert mistakes("store", "info", "x", "--redis-url=redis://h") == ["unknown argument x"]
    assert mistakes("store", "backup", "x", "y", "--redis-url=redis://h") == ["unknown argument y"]
    assert mistakes("store", "backup", "x", "--redis-url=redis://h", "--only=a/b/c") == [
        "--only: 'a/b/c' is not GROUP/PLURAL"
    ]


def test_flags_that_an_action_of_the_store_does_not_take_are_refused() -> None:
    words = ["store", "import", "--redis-url", "redis://h", "--from-file", "/", "--wait=1m", "--prune"]
    assert mistakes(*words, "--to-kubeconfig", "/gone") == [
        "--to-kubeconfig: there is no file /gone",
        "--wait: only for store init and store check and store info",
        "--to-kubeconfig: only for store export",
        "--prune: only for store export",
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "sluice --help"),
        (["--nonsense"], "sluice --help"),
        (["frobnicate", "dev"], "sluice --help"),
        (["dev", "--secure-port", "x"], "sluice dev --help"),
        (["store", "frobnicate"], "sluice store --help"),
        (["store", "--redis-url", "x", "init"], "sluice store init --help"),
    ],
)
def test_usage_error_names_the_command_that_lists_the_flags(words: list[str], told: str) -> None:
    assert config.help_for(words) == told


def test_flag_without_its_value_is_reported_among_other_errors() -> None:
    assert mistakes("dev", "--secure-port", "--kinds", "json", "--kinds", "--group=G", "-v") == [
        "--secure-port: needs a value",
        "--group: 'G' is not an API group: a lower-case DNS name with at least one dot",
        "--kinds: needs a value",
        "-v: needs a value",
    ]


def test_every_entry_of_a_list_is_judged() -> None:
    enable, disable = "--enable-admission-plugins", "--disable-admission-plugins"
    assert mistakes(
        "dev", enable, "No,,ResourceQuota,Neither", disable, "ResourceQuota", "--kinds=a-b,no_such_module"
    ) == [
        "--kinds: 'a-b' is not the name of a Python module",
        "--kinds: there is no module no_such_module",
        f'{enable}: plugin "No" is unknown',
        f"{enable}: has an empty entry",
        f'{enable}: plugin "Neither" is unknown',
        "[ResourceQuota] in enable-admission-plugins and disable-admission-plugins overlapped",
    ]


def test_feature_gates_add_up_and_the_last_word_about_one_counts() -> None:
    given = ["dev", "--feature-gates=A=true,B=f", "--feature-gates", " C = 1 ,,A=0"]
    assert config.parse(given, {}).serving.feature_gates == {"A": False, "B": False, "C": True}
    assert config.parse(["dev"], {"SLUICE_FEATURE_GATES": "kube:A=True"}).serving.feature_gates == {"A": True}
    assert config.parse(["dev"], {}).serving.feature_gates == {}


def test_each_gate_that_cannot_be_read_gets_upstreams_message() -> None:
    assert mistakes("dev", "--feature-gates=A,B=maybe,C=true=true", "--feature-gates=wardle:D=true,kube:E=true") == [
        "--feature-gates: missing bool value for A",
        '--feature-gates: invalid value of B=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax',
        '--feature-gates: invalid value of C=true=true, err: strconv.ParseBool: parsing "true=true": invalid syntax',
        "--feature-gates: component not registered: wardle",
        "--feature-gates: set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
    ]
    assert mistakes("serve", "--standalone", SLUICE_FEATURE_GATES="A:B:C")[0] == (
        "SLUICE_FEATURE_GATES: component not registered: A"
    )


@pytest.mark.parametrize("command", [config.DEV, config.SERVE])
def test_help_lists_the_feature_gates_a_line_each(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    gates = ["AllAlpha=true|false (ALPHA - default=false)", f"{'Long' * 20}=true|false (BETA - default=true)"]
    with pytest.raises(SystemExit):
        config.parse([command, "--help"], {}, gates=gates)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    first = lines.index(gates[0])
    assert lines[first - 1].endswith("[SLUICE_FEATURE_GATES]")
    assert lines[first + 1] == gates[1]


def test_no_two_settings_are_called_the_same() -> None:
    names = [flag.name for flag in config.FLAGS]
    assert len(set(names)) == len(names) > 30


def test_flag_with_a_default_can_be_given_only_to_actions_that_use_it() -> None:
    store = {"SLUICE_REDIS_URL": "redis://localhost:1"}
    assert config.parse(["store", "init"], store).storage.object_bytes == parsers.LEAST_OBJECT_BYTES
    with pytest.raises(config.ConfigError, match="--max-object-bytes: only for store import"):
        config.parse(["store", "init", "--max-object-bytes=4000000"], store)


@pytest.mark.parametrize("size", ["1572863", "8388609", "1Mi"])
def test_longest_object_is_between_the_limit_of_etcd_and_eight_mebibytes(size: str) -> None:
    with pytest.raises(config.ConfigError, match="--max-object-bytes"):
        config.parse(["dev", f"--max-object-bytes={size}"], {})


def test_help_names_the_actions_that_use_a_flag_only_for_a_command_with_actions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    helps = []
    for words in (["serve", "--help"], ["store", "--help"]):
        with pytest.raises(SystemExit):
            config.parse(words, {})
        helps.append(" ".join(capsys.readouterr().out.split()))
    text = "longest object as it is stored"
    assert [f"import: {text}" in shown for shown in helps] == [False, True]
