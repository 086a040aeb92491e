"""Many servers on one controller; how fast it is, the benchmark judges."""

import pytest

from benchmarks import bench_serve_control


@pytest.mark.slow
def test_clocks_of_many_servers_follow_their_metrics():
    found = bench_serve_control.measured(12, 0.0, readings=24, sets=8)
    assert found["readings"] >= 24 and found["sets"] >= 8
