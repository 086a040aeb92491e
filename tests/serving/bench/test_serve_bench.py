"""``wn.serve_bench``: from an address to points, in Python."""

from __future__ import annotations

import pytest

import wastenot as wn
from testbed.stand_in_server import Behaviour, virtual_server
from wastenot.serving.bench import steady_state
from wastenot.serving.bench.loads import Lengths, load_of_lengths
from wastenot.serving.tables.store import ServingStore

LOAD = load_of_lengths(Lengths(20.0), Lengths(20.0))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(steady_state, "LEAST_STEADY_S", 0.5)
    with virtual_server(Behaviour(ttft_s=0.01, gap_s=0.01)) as running:
        yield running


def test_points_of_a_server_and_of_its_gpu_at_two_clocks(server, tmp_path):
    study = wn.open_study(tmp_path / "s.db", create=True)
    settings = (wn.AUTO, wn.Setting(core_mhz=1200.0))
    outcome = wn.serve_bench(server.url, study, batches=[4], load=LOAD, devices="sim:h200", settings=settings, steady_s=0.8)
    assert [point.setting for point in outcome.points] == list(settings)
    assert all(point.evidence == "simulated" and point.energy_per_token_j > 0.0 for point in outcome.points)
    assert ServingStore(study).points() == tuple(outcome.points)


def test_what_makes_no_sense_is_refused_before_the_server_is_asked(server, tmp_path):
    for more, message in (
        ({"batches": [0]}, "numbers above 0"),
        ({"batches": []}, "numbers above 0"),
        ({"steady_s": 0.0}, "steady_s 0: must be"),
        ({"gpus": 0}, "gpus 0: must be"),
        ({"settings": (wn.Setting(core_mhz=1200.0),)}, "name them with devices"),
        ({"devices": "sim:h200", "meter": "http://x"}, "meter: has no effect with devices"),
        ({"meter": "file:///etc/hostname"}, "not a valid address"),
    ):
        with pytest.raises(wn.BadInputError, match=message):
            wn.serve_bench(server.url, tmp_path / "s.db", load=LOAD, **more)
    assert server.requests == [] and not (tmp_path / "s.db").exists()


def test_passwords_in_addresses_are_not_kept(server, tmp_path):
    address = server.url.replace("://", "://me:secret@")
    outcome = wn.serve_bench(address, tmp_path / "s.db", batches=[2], load=LOAD, steady_s=0.6)
    assert outcome.points[0].source == server.url
    assert b"secret" not in (tmp_path / "s.db").read_bytes()
