"""``wastenot`` on the stand-in, whose ``serve control`` writes down what it hears and decides, to be decided again.

python -m testbed.logged_control serve control ...      with the file to write in CONTROL_LOG
decided_again(log, engine, rules)                       by the controller, and by the policy as the simulator calls it
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast
from unittest import mock

from testbed.stand_in.library import SOCKET_VARIABLE
from testbed.stand_in.program import on_stand_in
from wastenot.cli.main import run
from wastenot.serving.bench.server_metrics import ServerReading
from wastenot.serving.control.instance import Instance, Rules
from wastenot.serving.control.sources import Heard
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.by_metrics import ByMetrics
from wastenot.serving.simulation.policy import View

LOG_VARIABLE = "CONTROL_LOG"


class Call(NamedTuple):
    """What a controller was called with, and what it decided.

    Attributes:
        now_s: by ``time.monotonic``.
        heard: ``None`` where it was asked to check that it is still heard of.
        state: of the instance afterwards.
        why: the clocks are the driver's.
        index: of the setting chosen.
        steps: of feedback.
    """

    now_s: float
    heard: Heard | None
    state: str
    why: str
    index: int
    steps: int


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Write down all calls of this process's instances; what is written stays if the process is killed."""
    hear, check = Instance.hear, Instance.check
    with path.open("ab", buffering=0) as file:

        def wrote(instance: Instance, now_s: float, heard: Heard | None) -> None:
            call = Call(now_s, heard, *_decided(instance))
            file.write(pickle.dumps(tuple(call)))

        def hear_and_write(instance: Instance, heard: Heard, now_s: float) -> None:
            hear(instance, heard, now_s)
            wrote(instance, now_s, heard)

        def check_and_write(instance: Instance, now_s: float) -> None:
            check(instance, now_s)
            wrote(instance, now_s, None)

        with mock.patch.object(Instance, "hear", hear_and_write), mock.patch.object(Instance, "check", check_and_write):
            yield


def _decided(instance: Instance) -> tuple[str, str, int, int]:
    return instance.state, instance.why, instance.index, instance.policy.feedback.steps


def read_log(path: Path) -> list[Call]:
    """The calls, in order; the last may be cut off."""
    found: list[Call] = []
    with path.open("rb") as file:
        while True:
            try:
                found.append(Call(*pickle.load(file)))
            except (EOFError, pickle.UnpicklingError):
                return found


@dataclass(frozen=True, slots=True)
class Again:
    """Decisions made again from a log.

    Attributes:
        calls: of the controller.
        alike: of them, after which state, reason, setting and feedback are the same again.
        decisions: for a setting that the policy made live.
        simulated_alike: of them, those that the policy makes as the simulator calls it.
        settings: how many different ones were chosen.
        defaults: reasons for which the clocks became the driver's, in order.
    """

    calls: int
    alike: int
    decisions: int
    simulated_alike: int
    settings: int
    defaults: tuple[str, ...]


class _Beside(ByMetrics):
    """The controller's policy, with one beside it that is called as the simulator does.

    The simulator knows no faults of metrics, so the other restarts where the controller lets this one restart.
    """

    def __init__(self, rules: Rules, engine: Engine) -> None:
        super().__init__(rules.headroom)
        self.simulated = ByMetrics(rules.headroom, period_s=0.0)
        self.simulated.begin(engine, rules.deadlines)
        self.setting, self.decided = -1, False
        self.begin(engine, rules.deadlines)

    def hear(self, at_s: float, reading: ServerReading) -> None:
        super().hear(at_s, reading)
        view = SimpleNamespace(now_s=at_s, reading=lambda: reading)
        self.setting = self.simulated.choose(cast(View, view)).setting

    def restart(self) -> None:
        super().restart()
        self.simulated.restart()

    def decide(self) -> int:
        self.decided = True
        return super().decide()


def decided_again(log: list[Call], engine: Engine, rules: Rules) -> Again:
    """Give the controller the same calls at the same times, and the readings that it took in to the simulator's policy."""
    assert log, "nothing was logged"
    with mock.patch("time.monotonic", lambda: log[0].now_s):
        instance = Instance("again", (), engine, rules, lambda event: None)
    policy = instance.policy = _Beside(rules, engine)
    alike = simulated_alike = 0
    chosen: list[int] = []
    defaults: list[str] = []
    for call in log:
        before, policy.decided = instance.state, False
        with mock.patch("time.monotonic", lambda now_s=call.now_s: now_s):
            if call.heard is None:
                instance.check(call.now_s)
            else:
                instance.hear(call.heard, call.now_s)
        alike += _decided(instance) == (call.state, call.why, call.index, call.steps)
        if policy.decided:
            chosen.append(call.index)
            simulated_alike += policy.setting == call.index
        if instance.state == "default" != before:
            defaults.append(instance.why)
    return Again(len(log), alike, len(chosen), simulated_alike, len(set(chosen)), tuple(defaults))


def main() -> int:
    """Run the program; where there is a stand-in, its GPUs are this machine's."""
    path = os.environ.get(LOG_VARIABLE)
    with logged(Path(path)) if path else mock.patch.dict(os.environ):
        if SOCKET_VARIABLE not in os.environ:
            return run(sys.argv[1:])
        with on_stand_in():
            return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
