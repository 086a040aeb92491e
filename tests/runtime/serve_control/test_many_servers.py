"""A hundred servers on one controller; how fast it is, the benchmark judges."""

from benchmarks import bench_serve_control


def test_clocks_of_a_hundred_servers_follow_their_metrics():
    found = bench_serve_control.measured(100, 0.0, readings=200, sets=20)
    assert found["readings"] >= 200 and found["sets"] >= 20
