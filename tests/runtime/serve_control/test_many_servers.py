"""A hundred servers on one controller."""

from benchmarks import bench_serve_control


def test_clocks_of_a_hundred_servers_follow_their_metrics():
    found = bench_serve_control.measured(100, 5.0)
    assert found["readings"] >= 200 and found["sets_per_s"] > 5.0
    assert found["median_s"] < 1.0  # a few hundredths where nothing else runs
