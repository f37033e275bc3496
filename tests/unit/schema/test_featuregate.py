from __future__ import annotations

import pytest

from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.schema.featuregate import ALL_ALPHA, Gate, Gates, InvalidGates, Spec, Stage, fitting, versioned

OLD, YOUNG = Gate("Old", default=True, stage=Stage.GA), Gate("Young", default=False, stage=Stage.ALPHA)
FOREIGN = Gate("Foreign", default=True, stage=Stage.BETA)
FIXED = Gate("Fixed", default=True, stage=Stage.GA, locked=True)
LEANING = Gate("Leaning", default=True, stage=Stage.BETA, needs=(OLD, FIXED))
BOLD = Gate("Bold", default=False, stage=Stage.ALPHA, needs=(YOUNG, LEANING))
DUSTY = Gate("Dusty", default=False, stage=Stage.DEPRECATED)


def mistakes(switched: dict[str, bool]) -> list[str]:
    with pytest.raises(InvalidGates) as raised:
        Gates((FIXED, BOLD, DUSTY), switched)
    return raised.value.errors


def test_a_gate_stands_as_declared_until_it_is_switched() -> None:
    assert [Gates((OLD, YOUNG)).enabled(gate) for gate in (OLD, YOUNG)] == [True, False]
    switched = Gates((OLD, YOUNG), {"Old": False, "Young": True})
    assert [switched.enabled(gate) for gate in (OLD, YOUNG)] == [False, True]


def test_undeclared_gate_can_be_neither_switched_nor_queried() -> None:
    with pytest.raises(ValueError, match=r"^unrecognized feature gate: Foreign$"):
        Gates((OLD,), {"Foreign": True})
    with pytest.raises(KeyError):
        Gates((OLD,)).enabled(FOREIGN)


def test_gates_that_a_gate_depends_on_are_known_with_it() -> None:
    gates = Gates((BOLD,))
    assert [gates.enabled(gate) for gate in (YOUNG, OLD, FIXED, LEANING)] == [False, True, True, True]


def test_a_gate_cannot_be_declared_in_two_ways() -> None:
    with pytest.raises(InvalidGates, match=r'^feature gate "Old" with different spec already exists$'):
        Gates((OLD, Gate("Old", default=False, stage=Stage.GA)))
    assert Gates((OLD, OLD, Gate("Old", default=True, stage=Stage.GA))).enabled(OLD)


def test_locked_gate_accepts_only_its_own_value() -> None:
    assert Gates((FIXED,), {"Fixed": True}).enabled(FIXED)
    assert mistakes({"Fixed": False}) == ["cannot set feature gate Fixed to false, feature is locked to true"]


def test_a_gate_cannot_be_on_without_those_that_it_needs() -> None:
    assert mistakes({"Old": False}) == ["Leaning is enabled, but depends on features that are disabled: [Old]"]
    assert mistakes({"Bold": True, "Leaning": False}) == [
        "Bold is enabled, but depends on features that are disabled: [Leaning Young]"
    ]
    assert not Gates((BOLD,), {"Old": False, "Leaning": False}).enabled(LEANING)


def test_all_errors_come_at_once_and_a_refused_part_hides_nothing() -> None:
    assert mistakes({"Foreign": True, "Fixed": False, "old": True, "Old": False}) == [
        "unrecognized feature gate: Foreign",
        "cannot set feature gate Fixed to false, feature is locked to true",
        "unrecognized feature gate: old",
        "Leaning is enabled, but depends on features that are disabled: [Old]",
    ]


@pytest.mark.parametrize("switched", [{"AllAlpha": True, "Bold": False}, {"Bold": False, "AllAlpha": True}])
def test_all_gates_of_a_stage_switch_together_except_named_ones(switched: dict[str, bool]) -> None:
    gates = Gates((BOLD, DUSTY), switched)
    assert [gates.enabled(gate) for gate in (ALL_ALPHA, YOUNG, BOLD, LEANING, DUSTY)] == [
        True,
        True,
        False,
        True,
        False,
    ]


def test_no_gate_of_beta_is_on_when_all_are_off() -> None:
    assert dict(Gates((BOLD,), {"AllBeta": False}).all())[LEANING] is False


def test_help_lists_what_may_still_change() -> None:
    assert Gates((BOLD, DUSTY, FIXED), {"Young": True}).described() == [
        "AllAlpha=true|false (ALPHA - default=false)",
        "AllBeta=true|false (BETA - default=false)",
        "Bold=true|false (ALPHA - default=false)",
        "Leaning=true|false (BETA - default=true)",
        "Young=true|false (ALPHA - default=false)",
    ]


def test_switching_what_will_go_is_warned_about() -> None:
    assert Gates((BOLD, DUSTY), {"Dusty": True, "Fixed": True, "Young": True}).warnings() == [
        ("Warning: setting deprecated feature gate. It will be removed in a future release.", DUSTY, True),
        ("Warning: setting GA feature gate. It will be removed in a future release.", FIXED, True),
    ]


SINCE_37 = versioned("Since37", Spec(V1_37, default=False, stage=Stage.ALPHA))
LOCKED_37 = versioned(
    "Locked37",
    Spec(V1_36, default=False, stage=Stage.ALPHA),
    Spec(V1_37, default=True, stage=Stage.GA, locked=True),
)
ALWAYS = Gate("Always", default=False, stage=Stage.ALPHA)
NEEDY = versioned(
    "Needy",
    Spec(V1_36, default=False, stage=Stage.ALPHA),
    Spec(V1_37, default=True, stage=Stage.BETA),
    needs=(ALWAYS,),
)


@pytest.mark.parametrize(
    ("release", "switched", "left", "refused"),
    [
        (V1_36, {"Since37": True, "Always": True}, {"Always": True}, {"Since37": "unrecognized feature gate: Since37"}),
        (V1_37, {"Since37": True, "Always": True}, {"Since37": True, "Always": True}, {}),
        (V1_36, {"Locked37": False}, {"Locked37": False}, {}),
        (
            V1_37,
            {"Locked37": False},
            {},
            {"Locked37": "cannot set feature gate Locked37 to false, feature is locked to true"},
        ),
    ],
)
def test_switches_that_a_release_cannot_have_are_left_out(
    release: Release, switched: dict[str, bool], left: dict[str, bool], refused: dict[str, str]
) -> None:
    assert fitting((SINCE_37, LOCKED_37, ALWAYS), switched, release=release) == (left, refused)


def test_every_switch_of_an_unmet_dependency_is_left_out() -> None:
    declared = (versioned("Needy", Spec(V1_36, default=False, stage=Stage.ALPHA), needs=(ALWAYS,)),)
    left, refused = fitting(declared, {"Needy": True, "Always": False, "AllBeta": True}, release=V1_36)
    assert left == {"AllBeta": True}
    text = "Needy is enabled, but depends on features that are disabled: [Always]"
    assert refused == {"Needy": text, "Always": text}


def test_switch_of_a_stage_is_left_out_if_it_alone_causes_the_error() -> None:
    off = versioned("Off", Spec(V1_36, default=True, stage=Stage.BETA))
    declared = (versioned("Needy", Spec(V1_36, default=True, stage=Stage.GA), needs=(off,)),)
    assert fitting(declared, {"AllBeta": False, "AllAlpha": True}, release=V1_36)[0] == {}
