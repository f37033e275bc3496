"""How much a client wants a form: `q` in Accept, a number of 32 bits in any of Go's spellings."""

from __future__ import annotations

import pytest

from tests.promises.api.client import Client

JSON, YAML = "application/json", "application/yaml"


@pytest.mark.parametrize(
    ("json", "yaml", "wins"),
    [
        ("0.5", "Inf", YAML),
        ("0.5", "+inFinity", YAML),
        ("0.5", "-Inf", JSON),
        ("0.5", "infinit", JSON),
        ("1e38", "1e39", YAML),
        ("1e39", "1e400", JSON),
        ("0", "1e-50", JSON),
        ("0.9", "0.900000001", JSON),
        ("0.9", "0.9000001", YAML),
        ("0.5", "1_0", YAML),
        ("0.5", "1__0", JSON),
        ("0.5", "1e1_0", YAML),
        ("0.5", "0x1p0", YAML),
        ("1.25", "0X_1.8P+0", YAML),
        ("0.5", "0x1", JSON),
        ("0.5", "0x1p99999", YAML),
        ("NaN", "1", JSON),
        ("1", "NaN", JSON),
        ("0.5", "\u0663", JSON),
    ],
)
def test_a_quality_is_a_number_as_go_reads_it(api: Client, json: str, yaml: str, wins: str) -> None:
    """The first of equally wanted, or incomparable, forms is served."""
    accept = f"{JSON};q={json},{YAML};q={yaml}"
    reply = api.ask("GET", api.classes, headers={"Accept": accept.encode().decode("latin-1")})

    assert (reply.status, reply.headers["Content-Type"]) == (200, wins)
