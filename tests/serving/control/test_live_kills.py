"""Controllers and servers killed at random moments: no clock stays changed. The benchmark kills a thousand."""

import pytest

from testbed.stand_in import serve_kills


@pytest.mark.slow  # test_live_control.py kills one once
@pytest.mark.parametrize(("kind", "kills"), [(kind, 2) for kind in serve_kills.KINDS])
def test_nothing_is_left_changed(kind, kills):
    journals_there = 0
    for seed in range(7, 12):  # more rounds where every kill happened to fall between two clocks
        found = serve_kills.main(kind, kills, seed=seed)
        assert (found["kills"], found["left"]) == (kills, 0)
        journals_there += found["journal_there"]
        if journals_there:
            break
    assert journals_there > 0  # or nothing was tried
