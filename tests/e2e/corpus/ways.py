"""The servers that the corpus is played against, and which of its scenarios each can be asked."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import Bed
from tests.e2e.corpus import comparison, known
from tests.e2e.corpus.comparison import Outcome

CORPUS = pathlib.Path(__file__).resolve().parents[4] / "shared" / "differential"
EXCERPT = pathlib.Path(__file__).resolve().parents[2] / "cases" / "differential"


def corpus() -> pathlib.Path:
    """The one that can be played here."""
    return CORPUS if (CORPUS / "run").exists() else EXCERPT


@dataclass(frozen=True)
class Way:
    """How a request reaches Sluice."""

    name: str
    skip: str
    """Scenarios that would be answered by somebody else."""

    def kubeconfig(self, bed: Bed) -> pathlib.Path:
        """The administrator's."""
        return bed.admin if self is AGGREGATED else bed.straight(bed.admin)

    def play(self, bed: Bed, corpus: pathlib.Path) -> Outcome:
        behind = self is AGGREGATED
        return comparison.compare(
            corpus, self.kubeconfig(bed), group=bed.group, core=bed.admin, skip=self.skip, behind=behind
        )


AGGREGATED = Way("aggregated", "^routes")
"""Through kube-apiserver, which answers itself what is no resource."""
DIRECT = Way("direct", "")
"""At Sluice's own port."""
WAYS: Mapping[str, Way] = {way.name: way for way in (AGGREGATED, DIRECT)}


def bed(folder: pathlib.Path) -> Bed:
    """As the recording was made: no controller reacts to what a scenario does, and a new role counts at once, since the server that was
    recorded keeps the roles itself."""
    return Bed(folder, serve_flags=["--authorization-webhook-cache-unauthorized-ttl=0s"])


def verdict(way: Way, bed: Bed, corpus: pathlib.Path) -> known.Verdict:
    return known.judge(way.play(bed, corpus), known.load(), way=way.name, release=binaries.minor())
