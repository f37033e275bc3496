"""Hypothesis strategies: JSON values, path elements, and field sets of any form."""

from __future__ import annotations

from hypothesis import strategies as st

from structuredmerge import paths, sets
from structuredmerge.paths import Element, Path
from structuredmerge.sets import Set

TEXT = st.sampled_from(
    ["", "a", "b", "ab", "B", "é", "\uffff", "😀", "<&>", "\u2028", '\x00\x07\x7f\b\f\n\t"\\', "x.io/y"]
)
# Numbers in path elements are read as float64.
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, 1, 1.0])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2), max_leaves=4
)
FEW = st.sampled_from([0, 1, True, "a", "1", None])

# Few of them, so that sets meet.
NAMED = st.sampled_from(["a", "b", "c", "spec"]).map(paths.field)
ELEMENTS: st.SearchStrategy[Element] = st.one_of(
    NAMED,
    NAMED,
    st.dictionaries(st.sampled_from(["name", "id"]), FEW, min_size=1, max_size=2).map(paths.keyed),
    FEW.map(paths.item),
    st.integers(0, 2).map(paths.index),
)
ANY_ELEMENTS: st.SearchStrategy[Element] = st.one_of(
    TEXT.map(paths.field),
    st.dictionaries(TEXT, VALUES, max_size=3).map(paths.keyed),
    VALUES.map(paths.item),
    st.integers(-(2**63), 2**63 - 1).map(paths.index),
)
PATHS: st.SearchStrategy[Path] = st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple)
ANY_PATHS: st.SearchStrategy[Path] = st.lists(ANY_ELEMENTS, min_size=1, max_size=3).map(tuple)
SETS: st.SearchStrategy[Set] = st.lists(PATHS, max_size=8).map(sets.of)
ANY_SETS: st.SearchStrategy[Set] = st.lists(PATHS | ANY_PATHS, max_size=8).map(sets.of)
