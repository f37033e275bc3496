"""Versions and resources that `--runtime-config` switches on and off, and errors of its value."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from apiserver import apigroups
from apiserver.config import config
from apiserver.config.config import ConfigError
from apiserver.kinds import enablement
from apiserver.kinds.served import Kinds

HOME = "resource.k8s.io"


def kinds(
    runtime_config: str, group: str = HOME, environ: Mapping[str, str] | None = None, release: str = "1.37"
) -> Kinds:
    words = ["dev", "--group", group, "--emulated-version", release]
    words += ["--runtime-config", runtime_config] if runtime_config else []
    return apigroups.kinds(config.parse(words, environ or {}).serving)


def served(runtime_config: str, group: str = HOME, release: str = "1.37") -> dict[str, int]:
    """How many resources each version has."""
    found = kinds(runtime_config, group, release=release).groups.get(group, {})
    return {version: len(resources) for version, resources in found.items()}


def test_the_older_versions_are_served_in_the_group_of_upstream_alone() -> None:
    assert served("") == {"v1": 5, "v1beta2": 5, "v1beta1": 4}
    assert served("", "x.example.com") == {"v1": 5}


def test_taint_rules_are_in_v1_from_1_37_on() -> None:
    assert served("", release="1.36") == {"v1": 4, "v1beta2": 5, "v1beta1": 4}
    assert served("", "x.example.com", release="1.36") == {"v1": 4}


def test_alpha_versions_are_served_where_the_operator_enables_them_alone() -> None:
    assert served(f"{HOME}/v1alpha3=true")["v1alpha3"] == 2
    assert served(f"{HOME}/v1alpha3/resourcepoolstatusrequests=true")["v1alpha3"] == 1
    assert "v1alpha3" in served("api/alpha=true")
    assert "v1alpha3" not in served("api/beta=true")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("{}/v1beta1=true", {"v1": 5, "v1beta1": 4}),
        ("{}/v1beta2", {"v1": 5, "v1beta2": 5}),
        ("{}/v1beta1=T,{}/v1beta2=1", {"v1": 5, "v1beta2": 5, "v1beta1": 4}),
        ("api/beta=true", {"v1": 5, "v1beta2": 5, "v1beta1": 4}),
        ("api/alpha=true", {"v1": 5, "v1alpha3": 2}),
        ("api/ga=false,api/beta=true", {"v1beta2": 5, "v1beta1": 4}),
        ("api/all=true", {"v1": 5, "v1beta2": 5, "v1beta1": 4, "v1alpha3": 2}),
        ("api/beta=false,api/all=true", {"v1": 5, "v1alpha3": 2}),
        ("api/all=false,{}/v1beta1=true", {"v1beta1": 4}),
        ("{}/v1=false,{}/v1beta1=true", {"v1beta1": 4}),
        ("{}/v1beta1/resourceclaims=true", {"v1": 5, "v1beta1": 1}),
        ("{}/v1/resourceslices=0", {"v1": 4}),
        ("{}/v1=false,{}/v1/resourceslices=true", {"v1": 1}),
        ("{}/v1beta1/things=true", {"v1": 5}),
        (" {}/v1beta1 = true ,,", {"v1": 5, "v1beta1": 4}),
        ("{}/v1beta1=true,{}/v1beta1=false", {"v1": 5}),
    ],
)
def test_most_specific_setting_wins(said: str, expected: Mapping[str, int]) -> None:
    group = "x.example.com"
    assert served(said.replace("{}", group), group) == expected


def test_every_kind_is_stored_and_known_whether_it_is_served_or_not() -> None:
    every, one = kinds(""), kinds(f"{HOME}/v1=false,api/beta=false,{HOME}/v1/resourceslices=true")
    assert [r.plural for r in one] == ["resourceslices"]
    assert [r.storage_name for r in one.stored] == [r.storage_name for r in every.stored]
    assert one.known == every.known
    assert one.named(HOME, "v1beta1", "ResourceClaim") is not None
    assert one.at(HOME, "v1beta1", "resourceclaims") is None


def test_the_flag_can_be_given_several_times_and_has_an_environment_twin() -> None:
    words = ["--runtime-config", "api/beta=false", "--runtime-config", f"{HOME}/v1beta2=true"]
    parsed = config.parse(["dev", "--group", HOME, *words], {})
    assert parsed.serving.runtime_config == {"api/beta": "false", f"{HOME}/v1beta2": "true"}
    assert list(apigroups.kinds(parsed.serving).groups[HOME]) == ["v1", "v1beta2"]
    twin = kinds("", environ={"SLUICE_RUNTIME_CONFIG": "api/beta=false"})
    assert list(twin.groups[HOME]) == ["v1"]


@pytest.mark.parametrize(
    ("said", "mistakes"),
    [
        ("api/all=false", ["invalid runtime-config with only api/all=false"]),
        (f"{HOME}/v1=false,api/beta=false", ["nothing is left to be served"]),
        ("api/beta=yes", ["invalid value api/beta=yes"]),
        ("api/all=yes", ["invalid value api/all=yes"]),
        ("api/ga", ["invalid value api/ga="]),
        ("v1=true", ["runtime-config invalid key v1"]),
        ("a/b/c/d=true", ["runtime-config invalid key a/b/c/d"]),
        ("other.io/v1=true,batch/v1", ["unknown api groups batch/v1,other.io/v1"]),
        ("api/legacy=true", ["unknown api groups api/legacy"]),
        (f"{HOME}/v9=true", [f"group version {HOME}/v9 that has not been registered"]),
        (
            f"{HOME}/v1=yes",
            [f'invalid value of {HOME}/v1: yes, err: strconv.ParseBool: parsing "yes": invalid syntax'],
        ),
        (
            f"{HOME}/v1=maybe,api/beta=false",
            [f'invalid value of {HOME}/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax'],
        ),
        (
            f"{HOME}/v1/ResourceSlices=true",
            [
                (
                    f"invalid key {HOME}/v1/ResourceSlices: group/version/resource and resource is always lowercase plural, "
                    'not "ResourceSlices"'
                )
            ],
        ),
        (
            f"api/ga=x,{HOME}/v9=true,v2,a/b=true",
            [
                "invalid value api/ga=x",
                f"group version {HOME}/v9 that has not been registered",
                "runtime-config invalid key v2",
                "unknown api groups a/b",
            ],
        ),
    ],
)
def test_all_errors_get_upstreams_messages(said: str, mistakes: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        kinds(said)
    assert refused.value.errors == [f"--runtime-config: {text}" for text in mistakes]


def test_server_of_custom_resources_alone_needs_no_runtime_config() -> None:
    """`--no-builtin-kinds`: no version may be named, and none is missing."""
    assert list(enablement.errors({}, ())) == []
