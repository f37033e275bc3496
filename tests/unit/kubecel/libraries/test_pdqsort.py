from kubecel.libraries.pdqsort import order
from tests.fixtures.cases import each_case


@each_case("length", [0, 1, 12, 13, 49, 50, 51, 200, 1024])
@each_case("distinct", [1, 2, 7, 10_000])
@each_case("step", [1, 7919, -1])
def test_keys_come_in_order_and_each_once(length: int, distinct: int, step: int) -> None:
    keys = [index * step % distinct for index in range(length)]
    indices = order(keys)
    assert sorted(indices) == list(range(length))
    assert [keys[index] for index in indices] == sorted(keys)


def test_elements_with_equal_keys_end_up_where_go_puts_them() -> None:
    assert order([index % 3 for index in range(20)]) == [
        *(9, 18, 15, 3, 12, 0, 6),
        *(10, 7, 4, 13, 16, 1, 19),
        *(8, 5, 11, 14, 2, 17),
    ]


def test_keys_that_have_no_order_are_no_trouble() -> None:
    assert sorted(order([float("nan")] * 100)) == list(range(100))
