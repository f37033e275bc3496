"""The release that the operator chooses."""

from __future__ import annotations

import pytest

from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.config import config
from apiserver.config.config import ConfigError


def emulated(text: str) -> Release | None:
    return config.parse(["dev", f"--emulated-version={text}"], {}).serving.emulated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("1.36", V1_36),
        ("v1.37", V1_37),
        ("kube=1.36", V1_36),
        ("kube = 1.36", V1_36),
        ("1.36.0", V1_36),
        (" 1.36", V1_36),
    ],
)
def test_a_release_is_read_as_upstream_reads_it(text: str, expected: Release | None) -> None:
    assert emulated(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.20", "emulation version 1.20 is not between [1.36, 1.37]"),
        ("1.38", "emulation version 1.38 is not between [1.36, 1.37]"),
        ("1.36.3", "patch version not allowed, got: kube=1.36.3"),
        ("wardle=1.36", "component not registered: wardle"),
        ("1", 'illegal version string "1"'),
        ("latest", 'could not parse "latest" as version'),
        ("01.36", 'illegal zero-prefixed version component "01" in "01.36"'),
        ("1.36,kube=1.37", "duplicate version flag, kube=1.36 and kube=1.37"),
        ("1." + "9" * 5000, "illegal non-numeric version component"),
    ],
)
def test_a_wrong_release_is_refused_in_upstream_words(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match="emulated-version") as e:
        emulated(text)
    assert expected in str(e.value)
