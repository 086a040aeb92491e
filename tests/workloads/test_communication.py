"""Times of collectives against rings that are run message by message."""

import pytest
from hypothesis import given, strategies as st

from wastenot.core.errors import BadInputError
from wastenot.workloads.communication import LINKS, Link, all_gather_s, all_reduce_s, point_to_point_s

LINK = Link("mine", 1e9, 1e-6, "made up")


def _ring_s(chunks: int, hops: int, chunk_bytes: float) -> float:
    """Every GPU passes one chunk to its neighbour in each of ``hops`` steps; a step ends when the slowest is through."""
    clock = [0.0] * chunks
    for _ in range(hops):
        sent = [begin + LINK.latency_s + chunk_bytes / LINK.bytes_per_s for begin in clock]
        clock = [max(sent[gpu], sent[gpu - 1]) for gpu in range(chunks)]
    return max(clock)


@given(st.integers(1, 16), st.floats(0.0, 1e12))
def test_rings(gpus: int, size_bytes: float) -> None:
    assert all_reduce_s(LINK, size_bytes, gpus) == pytest.approx(_ring_s(gpus, 2 * (gpus - 1), size_bytes / gpus), rel=1e-9)
    assert all_gather_s(LINK, size_bytes, gpus) == pytest.approx(_ring_s(gpus, gpus - 1, size_bytes / gpus), rel=1e-9)


def test_by_hand() -> None:
    assert point_to_point_s(LINK, 1e6) == pytest.approx(1.001e-3)
    assert all_reduce_s(LINK, 8e6, 1) == 0.0
    assert all_reduce_s(LINK, 8e6, 4) == pytest.approx(2 * 3 / 4 * 8e-3 + 6e-6)  # 2 (n - 1)/n of the data


def test_links_name_themselves_and_their_source() -> None:
    for name, link in LINKS.items():
        assert link.name == name
        assert "assumed" in link.source


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(BadInputError, match="must be above 0"):
        Link("mine", 0.0, 0.0, "")
    with pytest.raises(BadInputError, match="must be at least 0"):
        Link("mine", 1.0, -1.0, "")
