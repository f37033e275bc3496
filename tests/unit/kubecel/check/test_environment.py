"""Environments: what one that extends another has, and what it refuses."""

import pytest

from kubecel.check.declarations import Function, Library, Overload, Shape, Variable
from kubecel.check.environment import Environment
from kubecel.libraries import optionals, standard
from kubecel.values.types import BOOL, DYN, INT, STRING, Type, list_of, map_of, parameter, struct, type_of

STANDARD = Environment().extend(libraries=(standard.LIBRARY,))


def _function(name: str, overload: str, *arguments: Type, result: Type = BOOL, member: bool = False) -> Function:
    return Function(name, (Overload(id=overload, arguments=arguments, result=result, member=member),))


def test_extended_environment_stays_unchanged() -> None:
    grown = STANDARD.extend(variables=(Variable("x", INT),), functions=(_function("f", "f_int", INT),), container="a")
    assert "x" in grown.variables
    assert "f" in grown.functions
    assert "x" not in STANDARD.variables
    assert "f" not in STANDARD.functions
    assert STANDARD.container == ""


def test_a_library_is_taken_in_once() -> None:
    twice = STANDARD.extend(libraries=(standard.LIBRARY, optionals.LIBRARY, optionals.LIBRARY))
    assert twice.libraries == {"cel.lib.std", "cel.lib.optional"}
    assert twice.optional_syntax
    assert not STANDARD.optional_syntax


def test_overloads_are_tried_in_the_order_in_which_they_came() -> None:
    index = STANDARD.extend(libraries=(optionals.LIBRARY,)).functions["_[_]"]
    assert [overload.id for overload in index.overloads] == [
        "index_list",
        "index_map",
        "optional_list_index_int",
        "optional_map_index_value",
    ]


def test_a_declaration_that_collides_is_refused() -> None:
    with pytest.raises(ValueError, match="overlapping identifier for name 'int'"):
        STANDARD.extend(variables=(Variable("int", INT),))
    taken = STANDARD.extend(functions=(_function("f", "f_list", list_of(DYN)),))
    with pytest.raises(ValueError, match="overload signature collision in function f: f_list collides with f_strings"):
        taken.extend(functions=(_function("f", "f_strings", list_of(STRING)),))
    with pytest.raises(ValueError, match=r"overload redefinition in function\. f: f_list has multiple definitions"):
        taken.extend(functions=(_function("f", "f_list", INT),))
    again = taken.extend(functions=(_function("f", "f_list", list_of(DYN)), _function("f", "f_int", INT)))
    assert [overload.id for overload in again.functions["f"].overloads] == ["f_list", "f_int"]


def test_names_are_looked_up_from_the_innermost_namespace() -> None:
    inside = STANDARD.extend(container="a.b.c")
    assert inside.names("x.y") == ("a.b.c.x.y", "a.b.x.y", "a.x.y", "x.y")
    assert inside.names(".x") == ("x",)
    assert STANDARD.names("x") == ("x",)


def test_a_shape_declares_the_objects_inside_it() -> None:
    inner = Shape(type=struct("Widget.spec"), fields={"__namespace__": Shape(type=STRING)})
    widget = Shape(
        type=struct("Widget"),
        fields={
            "spec": inner,
            "tags": Shape(type=map_of(STRING, STRING), keys=Shape(type=STRING), items=Shape(type=STRING)),
            "parts": Shape(
                type=list_of(struct("Part")), items=Shape(type=struct("Part"), fields={"n": Shape(type=INT)})
            ),
        },
    )
    environment = STANDARD.extend(shapes=(widget,))
    assert set(environment.shapes) == {"Widget", "Widget.spec", "Widget.tags", "Widget.parts", "Part"}
    assert environment.field("Widget", "spec") == struct("Widget.spec")
    assert environment.field("Part", "n") == INT
    assert environment.field("Part", "m") is None
    assert environment.field("Widget.tags", "any") == STRING
    assert environment.field("Widget.spec", "namespace") is None
    assert environment.extend(reserved_fields=True).field("Widget.spec", "namespace") == STRING
    assert environment.has_struct("Part")
    assert not environment.has_struct("Missing")
    found = environment.identifier("Widget.spec")
    assert found is not None
    assert found.type == type_of(struct("Widget.spec"))


def test_a_shape_may_grow() -> None:
    first = STANDARD.extend(shapes=(Shape(type=struct("V"), fields={"a": Shape(type=INT)}),))
    second = first.extend(shapes=(Shape(type=struct("V"), fields={"a": Shape(type=INT), "b": Shape(type=STRING)}),))
    assert first.field("V", "b") is None
    assert second.field("V", "b") == STRING


def test_candidates_of_a_function_are_shared_until_it_changes() -> None:
    grown = STANDARD.extend(variables=(Variable("x", INT),))
    assert grown.candidates("_+_") is STANDARD.candidates("_+_")
    changed = STANDARD.extend(functions=(_function("_+_", "add_bools", BOOL, BOOL),))
    assert changed.candidates("_+_") is not STANDARD.candidates("_+_")
    assert changed.candidates("_-_") is STANDARD.candidates("_-_")
    assert STANDARD.candidates("nothing") is None


def test_numbers_of_two_types_are_compared_on_request() -> None:
    def less(environment: Environment) -> set[str]:
        candidates = environment.candidates("_<_")
        assert candidates is not None
        return {overload.id for overload in candidates.globals}

    everything = less(STANDARD.extend(cross_type_numeric_comparisons=True))
    assert len(everything) == 14
    assert everything - less(STANDARD) == {
        "less_int64_double",
        "less_int64_uint64",
        "less_uint64_double",
        "less_uint64_int64",
        "less_double_int64",
        "less_double_uint64",
    }


def test_a_constant_of_a_library_has_its_value() -> None:
    library = Library(name="l", variables=(Variable("l.seven", INT, value=7),), types=(parameter("T"),))
    found = STANDARD.extend(libraries=(library,)).identifier("l.seven")
    assert found is not None
    assert (found.type, found.reference.value) == (INT, 7)
