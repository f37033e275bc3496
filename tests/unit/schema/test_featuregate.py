from __future__ import annotations

import pytest

from apiserver.schema.featuregate import Gate, Gates

OLD, YOUNG, FOREIGN = Gate("Old", default=True), Gate("Young", default=False), Gate("Foreign", default=True)


def test_a_gate_stands_as_declared_until_it_is_switched() -> None:
    assert [Gates((OLD, YOUNG)).enabled(gate) for gate in (OLD, YOUNG)] == [True, False]
    switched = Gates((OLD, YOUNG), {"Old": False, "Young": True})
    assert [switched.enabled(gate) for gate in (OLD, YOUNG)] == [False, True]


def test_a_gate_that_nobody_declares_can_be_neither_switched_nor_asked_about() -> None:
    with pytest.raises(ValueError, match=r"^unrecognized feature gate: Foreign$"):
        Gates((OLD,), {"Foreign": True})
    with pytest.raises(KeyError):
        Gates((OLD,)).enabled(FOREIGN)
