from bench import picture, results, tables


def test_the_tables_of_the_benchmarks_are_those_of_the_published_results() -> None:
    page = tables.README.read_text()
    assert page == tables.page(page, results.read(results.PUBLISHED)), (
        "python -m bench.picture --publish bench/results/published.json"
    )


def test_the_picture_of_the_benchmarks_is_that_of_the_published_results() -> None:
    assert picture.PICTURE.read_text() == picture.draw(results.read(results.PUBLISHED))
    assert f"({picture.PICTURE.name})" in tables.README.read_text()
