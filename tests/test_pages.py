"""Numbers in the pages are those that their scripts compute from the data."""

from __future__ import annotations

import pytest

from docs import (
    make_calibration,
    make_cluster_simulator,
    make_dynamollm,
    make_fingrav,
    make_h200,
    make_jobs_tables,
    make_natural,
    make_pipeline_tables,
    make_serve_sim,
    make_serving,
    make_serving_policies,
)
from docs.blocks import blocks_of, near, table, write_blocks


@pytest.mark.slow
def test_the_page_on_the_h200_says_what_its_data_say() -> None:
    assert blocks_of(make_h200.PAGE) == make_h200.blocks()


def test_the_page_on_pipelines_says_what_its_data_say() -> None:
    assert blocks_of(make_pipeline_tables.PAGE) == make_pipeline_tables.blocks()


def test_the_page_on_jobs_beside_zeus_says_what_its_data_say() -> None:
    assert blocks_of(make_jobs_tables.PAGE) == make_jobs_tables.blocks()


def test_the_page_on_serving_says_what_its_data_say() -> None:
    assert blocks_of(make_serving.PAGE) == make_serving.blocks()


def test_the_page_on_clusters_says_what_its_data_say() -> None:
    assert blocks_of(make_dynamollm.PAGE) == make_dynamollm.blocks()


def test_the_page_on_simulated_clusters_says_what_its_data_say() -> None:
    assert blocks_of(make_serve_sim.PAGE) == make_serve_sim.blocks()


def test_the_page_on_the_simulator_of_clusters_says_what_its_data_say() -> None:
    assert blocks_of(make_cluster_simulator.PAGE) == make_cluster_simulator.blocks()


def test_the_page_on_steering_says_what_its_data_say() -> None:
    assert blocks_of(make_serving_policies.PAGE) == make_serving_policies.blocks()


@pytest.mark.slow
def test_the_page_on_power_inside_kernels_says_what_its_data_say() -> None:
    assert near(blocks_of(make_fingrav.PAGE), make_fingrav.blocks())


@pytest.mark.slow
@pytest.mark.skipif(not make_calibration.DATA.is_dir(), reason="no measured sweeps")
def test_the_page_on_calibration_says_what_its_data_say() -> None:
    assert near(blocks_of(make_calibration.PAGE), make_calibration.low_memory_blocks())


def test_blocks_are_written_and_read(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- computed: one -->\n<!-- end -->\ntext\n<!-- computed: two -->\nold\n<!-- end -->\n")
    rows = table(["a", "b"], [["1", "2"]])
    write_blocks(page, {"one": rows})
    assert blocks_of(page) == {"one": "| a | b |\n|---|---|\n| 1 | 2 |\n", "two": "old\n"}
    write_blocks(page, {"one": rows, "two": "new\n"})
    assert page.read_text().endswith("text\n<!-- computed: two -->\nnew\n<!-- end -->\n")
    with pytest.raises(ValueError, match="no block 'three'"):
        write_blocks(page, {"three": ""})


@pytest.mark.slow
def test_the_page_on_natural_clocks_says_what_its_data_say() -> None:
    assert blocks_of(make_natural.PAGE) == make_natural.blocks()


def test_near_blocks_have_the_same_words_and_numbers_a_little_apart() -> None:
    assert near({"a": "x 1,000 W at +0.16 %"}, {"a": "x 1,020 W at −0.09 %"})
    assert not near({"a": "x 1,000 W"}, {"a": "x 1,100 W"})
    assert not near({"a": "x 10 W"}, {"a": "y 10 W"})
    assert not near({"a": "10 W"}, {"b": "10 W"})
