"""The page on stages: what was judged is what it says."""

import pytest

from docs import make_pipelines_stages
from docs.blocks import blocks_of


def test_the_page_shows_what_was_judged():
    assert blocks_of(make_pipelines_stages.PAGE)["confidence"] == make_pipelines_stages.confidence()


@pytest.mark.slow
def test_the_page_shows_what_was_computed():
    blocks = blocks_of(make_pipelines_stages.PAGE)
    assert blocks["composed"] == make_pipelines_stages.composed()
