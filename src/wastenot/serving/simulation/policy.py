"""A policy steers the clock of an engine. It sees what a scheduler sees, and what a predictor says of lengths.

It is the one interface of such policies, whoever asks them; which there are, :mod:`wastenot.serving.policies.by_name` says:

    an engine alone               simulate ──────── view ──► choose ──► clock
    an instance of a cluster      Steered(make) ─── view ──► choose ──► clock
    a server (``serve control``)  readings ───────────────► hear, decide ──► clock     what ``choose`` of ByMetrics does, too

What steers a whole cluster (instances, routes and rules for their clocks) is a ``Controller`` of
:mod:`wastenot.serving.cluster.model` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.bench.server_metrics import ServerReading
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """An engine between two steps. Arrays are the engine's own: look, do not write, do not keep.

    Attributes:
        now_s: the time.
        setting: in effect now; an index into the settings of the engine's tables.
        asked: that will be in effect once the switch under way is done; ``setting`` where there is none.
        steps: so far.
        free_blocks: of the cache.
        running_context: tokens in the cache of each request that decodes; shape (running,).
        running_left: tokens that each has still to make, as predicted, at least 1; shape (running,).
        running_made: tokens that each has made; shape (running,).
        running_arrival_s: when each came; shape (running,).
        running_first_s: when each had its first token; shape (running,).
        running_last_s: when each had its last token so far; shape (running,).
        waiting_tokens: prompt tokens still to be prefilled of each other request that is there, in the order in which the
            engine takes them; shape (waiting,).
        waiting_prompt: all prompt tokens of each; shape (waiting,).
        waiting_output: tokens it will be answered with, as predicted; shape (waiting,).
        waiting_arrival_s: when each came; shape (waiting,).
        reading: what the engine says of itself, as a running server does by its metrics; ``None`` where it says nothing.
    """

    now_s: float
    setting: int
    asked: int
    steps: int
    free_blocks: int
    running_context: FloatArray
    running_left: FloatArray
    running_made: FloatArray
    running_arrival_s: FloatArray
    running_first_s: FloatArray
    running_last_s: FloatArray
    waiting_tokens: FloatArray
    waiting_prompt: FloatArray
    waiting_output: FloatArray
    waiting_arrival_s: FloatArray
    reading: Callable[[], ServerReading] | None = field(default=None, kw_only=True)


class Choice(NamedTuple):
    """What a policy wants.

    Attributes:
        setting: to ask for; an index into the settings of the engine's tables. Asking for the one that is asked for already
            does nothing; another one replaces a switch that is under way.
        again_s: when the policy wants to be asked again even though nothing comes or goes.
    """

    setting: int
    again_s: float = math.inf


class Policy(Protocol):
    """Steers the clock. Asked between steps whenever a request has come, begun to decode or gone, and when it wants."""

    @property
    def name(self) -> str:
        """For tables and pictures."""

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """Prepare for a run; the setting that it begins at."""

    def choose(self, view: View) -> Choice:
        """The setting to ask for now."""


def check_setting(setting: int, engine: Engine, policy: Policy) -> None:
    """Refuse a setting that is none.

    Raises:
        BadInputError: it is none.
    """
    settings = len(engine.tables.settings)
    if not 0 <= setting < settings:
        raise BadInputError(f"the policy '{policy.name}' requests setting {setting}; settings are 0 to {settings - 1}")


@dataclass(slots=True)
class Fixed:
    """One clock throughout.

    Attributes:
        setting: an index into the settings; ``None`` is the maximum clock.
    """

    setting: int | None = None
    name: str = "maximum clock"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """The one clock."""
        if self.setting is None:
            self.setting = len(engine.tables.settings) - 1
        return self.setting

    def choose(self, view: View) -> Choice:
        """The one clock."""
        return Choice(view.asked)
