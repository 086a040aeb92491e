"""Many servers on one controller; how fast it is, the benchmark judges."""

from benchmarks import bench_serve_control


def test_clocks_of_many_servers_follow_their_metrics():
    found = bench_serve_control.measured(30, 0.0, readings=60, sets=20)
    assert found["readings"] >= 60 and found["sets"] >= 20
