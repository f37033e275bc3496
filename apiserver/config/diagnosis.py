"""The settings of `sluice doctor` and `sluice top`: whom they ask, and how they print it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from apiserver.config import topics
from apiserver.config.commands import ASKING, DOCTOR, TOP
from apiserver.config.flags import flag
from kubetext import durations

_LEAST_SECONDS = 0.1


def _some_seconds(text: str) -> float:
    value = durations.parse(text)
    if value < _LEAST_SECONDS:
        raise ValueError(f"must be at least {_LEAST_SECONDS:g}s")
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _server(text: str) -> str:
    host, _, port = text.removeprefix("https://").rstrip("/").rpartition(":")
    if text and (not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return text


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The installation that is asked, and the user who asks. Without a kubeconfig, kubectl's counts,
    and in a pod the service account."""

    TOPIC: ClassVar[str] = topics.DIAGNOSIS

    context: str = flag("context", ASKING, str, "",
        text="context of the kubeconfig (default: its current one)", value="NAME")
    namespace: str = flag("namespace", ASKING, str, "sluice-system", short="n",
        text="namespace of the installation", value="NAME")
    service: str = flag("service", ASKING, str, "sluice",
        text="name of its Service and Deployment", value="NAME")
    account: str = flag("service-account", (DOCTOR,), str, "sluice",
        text="name of its service account", value="NAME")
    server: str = flag("server", ASKING, _server, "",
        text="address of the Sluice server itself (default: an endpoint of the Service; kubectl port-forward where none is reached)",
        value="HOST:PORT")
    seconds: float = flag("timeout", (DOCTOR,), _some_seconds, "10s",
        text="longest time for one check; checks run at once", value="DURATION")
    interval: float = flag("interval", (TOP,), _some_seconds, "2s",
        text="time between two readings; rates are those of this time", value="DURATION")
    once: bool = flag("once", (TOP,), _boolean, "false",
        text="print one page and end", switch=True)
# fmt: on
