"""Controllers and servers killed at random moments: no clock stays changed. The benchmark kills a thousand."""

import pytest

from testbed.stand_in import serve_kills


@pytest.mark.parametrize(("kind", "kills"), list(zip(serve_kills.KINDS, (10, 6, 3, 5), strict=True)))
def test_nothing_is_left_changed(kind, kills):
    found = serve_kills.main(kind, kills, seed=7)
    assert (found["kills"], found["left"]) == (kills, 0)
    assert found["journal_there"] > 0
