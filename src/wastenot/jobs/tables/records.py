"""What a study keeps of a recurring training job: its terms, its runs, and how fast it ran.

job "bert-nightly"          target 0.84, batch sizes 16 … 256
├─ run 1   batch size 128   3 epochs, reached      1.2 h   0.9 MJ
├─ run 2   batch size  64   4 epochs, reached      …
└─ run 3   batch size 256   2 epochs, stopped      …
speeds      (device, batch size, setting) → time of an epoch, power
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wastenot.core.setting import AUTO, Setting

Outcome = Literal["running", "reached", "stopped", "missed", "diverged", "no memory", "failed", "lost"]
"""What became of a run.

- ``reached``: the target;
- ``stopped``: given up, because another batch size was expected to be cheaper than what was left of this one;
- ``missed``: all its epochs without the target;
- ``diverged``: its metric was no number;
- ``no memory``: its batches do not fit into the device's memory;
- ``failed``: the program ended with another error, which says nothing of the batch size;
- ``lost``: killed, or never heard of again; all that is known is that it would have needed more epochs than it had.
"""

LearningRateScaling = Literal["square root", "linear", "none"]


@dataclass(frozen=True, slots=True)
class JobTerms:
    """What a job is to reach, and what may be chosen.

    Attributes:
        name: of the job, unique in a study.
        batch_sizes: to choose among, ascending.
        default: the one that its user would run; one of them.
        target: value of the metric that ends a run; ``None`` where the program itself ends it once it has what it wants.
        higher_is_better: whether the metric rises towards the target.
        max_epochs: after which a run has missed the target; ``None`` for no bound.
        settings: power limits or clocks to choose among, the fastest first; empty where nothing may be set.
        eta: weight of energy against time, from 0 (time alone) to 1 (energy alone).
        max_power_w: of the device, at which a second of time is priced; ``None`` where there is no GPU.
        within_s: ask for the least energy of runs that take at most so long, in place of the weighted cost.
        power_budget_w: ask for the least time of runs whose mean power is at most this, in place of the weighted cost.
        learning_budget: what learning may cost beyond the default batch size, in runs of it; ``None`` for no bound.
    """

    name: str
    batch_sizes: tuple[int, ...]
    default: int
    target: float | None
    higher_is_better: bool = True
    max_epochs: int | None = None
    settings: tuple[Setting, ...] = (AUTO,)
    eta: float = 0.5
    max_power_w: float | None = None
    within_s: float | None = None
    power_budget_w: float | None = None
    learning_budget: float | None = None


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job.

    Attributes:
        number: from 1, in the order in which runs began.
        batch_size: that it ran with.
        device: label of the device that it ran on.
        outcome: what became of it.
        epochs: that it completed.
        time_s: that it took so far.
        energy_j: that it used so far; ``None`` where nothing measures it.
        setting: that was held; auto where none was.
        metric: after its last epoch; ``None`` before.
        started_unix_s: when it began.
    """

    number: int
    batch_size: int
    device: str
    outcome: Outcome
    epochs: int
    time_s: float
    energy_j: float | None
    setting: Setting = AUTO
    metric: float | None = None
    started_unix_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a job trains on a device at a batch size and a setting, as it was measured.

    Attributes:
        device: its label.
        batch_size: that was run.
        setting: that was held.
        epoch_time_s: time of an epoch.
        power_w: mean power; ``None`` where nothing measures it.
        time_error: standard error of the time, as a fraction of it.
        power_error: standard error of the power, as a fraction of it.
    """

    device: str
    batch_size: int
    setting: Setting
    epoch_time_s: float
    power_w: float | None
    time_error: float = 0.0
    power_error: float = 0.0
