"""What a controller decides live, from metrics that lie now and then, is decided again offline from what it heard."""

from contextlib import closing

import pytest

from testbed.live_control import ENGINE, clean, server_under_load, until
from testbed.logged_control import LOG_VARIABLE, decided_again, read_log
from testbed.lying_metrics import LIES, LyingProxy
from wastenot.serving.control.instance import Rules
from wastenot.serving.model.profile_file import read_engine

BELIEVED = ("1e12 prompt tokens", "1e9 requests running")  # which could be
TOLD = [lie for lie in LIES if lie not in (*BELIEVED, "frozen")]  # that one takes 8 s, and is in test_live_failures.py


@pytest.mark.slow
def test_lies_free_the_clocks_and_every_decision_until_a_kill_is_the_simulators(stand_in, controller, tmp_path):
    with server_under_load(stand_in) as (_, port), closing(LyingProxy(f"http://127.0.0.1:{port}")) as proxy:
        log = tmp_path / "control.log"
        control = controller(
            "--instance",
            f"{proxy.url}=nvidia:0",
            "--period",
            "0.3s",
            program="testbed.logged_control",
            **{LOG_VARIABLE: str(log)},
        )
        for lie in TOLD:
            assert control.wait_for_clock()["core_mhz"] < 1980.0
            proxy.lie = lie
            control.wait_for("default")
            assert until(lambda: stand_in.control.state(0).locked_core_mhz is None)
            proxy.lie = ""
        control.wait_for_clock()
        for lie in BELIEVED:
            proxy.lie = lie
            assert until(lambda: stand_in.control.state(0).locked_core_mhz is None)
            proxy.lie = ""
            assert until(lambda: stand_in.control.state(0).locked_core_mhz is not None)
        control.process.kill()
        control.process.wait()
        assert until(lambda: clean(stand_in))
    again = decided_again(read_log(log), read_engine(ENGINE).within_known_clocks().engine(), Rules())
    assert again.alike == again.calls
    assert again.simulated_alike == again.decisions > 2 * len(TOLD)
    assert again.settings > 1 and len(again.defaults) >= len(TOLD)
