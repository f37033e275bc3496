"""Deal each flow a few queues, so that two flows rarely share all queues. Pure.

Upstream: kubernetes/apiserver `pkg/util/shufflesharding/shufflesharding.go`, `pkg/util/flowcontrol/apf_controller.go` hashFlowID.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

MOST_BITS = 60
"""Bits of a hash that a deal may use, as upstream: with all 64, the last cards of a hand would come up unevenly."""
MOST_QUEUES = 1 << 26


def error(queues: int, hand: int) -> str:
    """Return why no hands can be dealt, in upstream's words; "" if they can."""
    if queues <= 0 or hand <= 0:
        return f"deckSize {queues} or handSize {hand} is not positive"
    if hand > queues:
        return f"handSize {hand} is greater than deckSize {queues}"
    if queues > MOST_QUEUES:
        return f"deckSize {queues} is impractically large"
    if math.ceil(math.log2(queues) * hand) > MOST_BITS:
        return f"required entropy bits of deckSize {queues} and handSize {hand} is greater than {MOST_BITS}"
    return ""


def flow_hash(schema: str, distinguisher: str) -> int:
    """Return the hash of a flow, which is the same in all API servers."""
    text = f"{schema}\0{distinguisher}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def deal(value: int, queues: int, hand: int) -> Sequence[int]:
    """Return the hand of a flow: different numbers below `queues`."""
    cards: list[int] = []
    remainders: list[int] = []
    for i in range(hand):
        value, card = divmod(value, queues - i)
        remainders.append(card)
        for before in reversed(remainders[:-1]):
            if card >= before:
                card += 1
        cards.append(card)
    return cards
