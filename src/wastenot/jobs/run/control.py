"""The GPUs of a run of a job: which settings may be chosen on them, and a session that finds and holds the best.

The clocks are given back when the run ends, however it ends: the session's thread holds their lease (session.py).
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from wastenot.control.driver import Subject
from wastenot.control.marker import EPOCH, ITERATION
from wastenot.control.places import make_own_socket_path
from wastenot.control.rank import Rank
from wastenot.control.session import Session
from wastenot.control.wire import VARIABLE
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.jobs.plan.limits import Limits
from wastenot.jobs.run.driver import JobDriver
from wastenot.jobs.run.place import Place
from wastenot.jobs.run.settings import job_settings
from wastenot.jobs.tables.records import JobTerms, Speed
from wastenot.jobs.tables.store import StoredJob

Settings = Literal["limits", "clocks", "none"] | Sequence[Setting]


@dataclass(frozen=True, slots=True)
class Knobs:
    """What may be set.

    Attributes:
        gpus: that this process may set; none where nothing is set.
        settings: to choose among, the fastest first.
        note: why nothing is set although it was asked for.
    """

    gpus: tuple[Device, ...] = ()
    settings: tuple[Setting, ...] = ()
    note: str | None = None


def knobs_of(place: Place, wanted: Settings) -> Knobs:
    """What may be set where a run takes place.

    Args:
        place: of the run.
        wanted: by the user.

    Raises:
        BadInputError: that cannot be wanted, or there is nothing to set it on.
    """
    if isinstance(wanted, str) and wanted not in ("limits", "clocks", "none"):
        raise BadInputError(f"`settings` {wanted!r}: must be 'limits', 'clocks', 'none' or a list of settings")
    named = not isinstance(wanted, str)
    if wanted == "none" or not wanted or not place.gpus:
        if wanted and named:
            raise BadInputError(
                f"`settings`: nothing can be set on {place.label}; name the GPUs that the job runs on: `device`"
            )
        return Knobs()
    what = {"limits": "power limits", "clocks": "clocks"}.get(str(wanted), "settings") if not named else "settings"
    if os.environ.get(VARIABLE):
        return Knobs(note=f"{what} are left unchanged: the program that started this one already sets the GPUs' clocks")
    if place.machines > 1:
        return Knobs(note=f"{what} are left unchanged, since the run spans {place.machines} machines")
    try:
        gpus = tuple(
            gpu if gpu.identity.origin == "simulated" else open_device(gpu.identity.name, allow_clock_control=True)
            for gpu in place.gpus
        )
        refusal = next((why for gpu in gpus if (why := gpu.clocks.refusal()) is not None), None)
        if refusal is not None:
            return Knobs(note=f"{what} are left unchanged: {refusal}")
        settings = tuple(wanted) if named else job_settings(gpus, wanted)  # type: ignore[arg-type]
    except ClocksRefusedError as error:
        return Knobs(note=f"{what} are left unchanged: {error}")
    return Knobs(gpus, settings)  # type: ignore[arg-type]


class JobControl:
    """Holds the best setting on the GPUs of a run, and measures others where that is worth it.

    Args:
        knobs: what may be set.
        terms: of the job.
        device: label of the GPUs in the job's records.
        batch_size: of the run.
        epochs: expected to the target; ``None`` where nothing is known.
        stored: what is known of the job.

    Raises:
        DeviceError: another process sets the clocks of a GPU.
    """

    def __init__(
        self, knobs: Knobs, terms: JobTerms, device: str, batch_size: int, epochs: float | None, stored: StoredJob
    ) -> None:
        limits = Limits(terms, like=_elsewhere(terms, device, stored))
        for speed in stored.speeds:
            if speed.device == device and speed.batch_size in terms.batch_sizes:
                limits.measured(speed)
        same = [run for run in stored.runs if run.device == device and run.batch_size == batch_size]
        gpus = knobs.gpus
        self._driver = JobDriver(
            gpus,
            Subject(f"job {terms.name}", "", terms.name, gpus[0].identity.origin),
            limits,
            batch_size,
            device=device,
            seen_s=math.fsum(run.time_s for run in same),
            epochs=epochs,
            now_s=gpus[0].time.now_s(),
        )
        self._session = Session(self._driver, make_own_socket_path("job"), one_program=True)
        self._session.__enter__()
        self._rank = Rank(str(self._session.path), sys.modules.get("torch"))
        try:
            self._rank.connect()
            self._rank.watch_everything()
        except BaseException:
            self._session.end("failed")
            raise

    @property
    def held(self) -> Setting:
        """The setting that is held now."""
        return self._driver.held

    @property
    def speeds(self) -> tuple[Speed, ...]:
        """What was measured."""
        return self._driver.speeds

    def iteration(self) -> None:
        """An iteration begins now; hooks that were found by themselves mark none from then on."""
        self._rank.mark(ITERATION)

    def epoch(self) -> None:
        """An epoch ends now."""
        with suppress(OSError):  # the session has ended; who ended it has said so
            self._rank.note(EPOCH)

    def end(self) -> str | None:
        """Give the clocks back; returns what ended it early, if anything did."""
        with suppress(OSError):
            self._rank.close()
        self._session.end("job ended")
        return self._session.problem


def _elsewhere(terms: JobTerms, device: str, stored: StoredJob) -> Limits | None:
    """What is known of the job on the device other than this one that most was measured on; ``None`` where nothing is."""
    by_device: dict[str, list[Speed]] = {}
    for speed in stored.speeds:
        if speed.device != device and not speed.setting.is_auto:
            by_device.setdefault(speed.device, []).append(speed)
    if not by_device:
        return None
    speeds = max(by_device.values(), key=len)
    settings = tuple(dict.fromkeys(speed.setting for speed in speeds))
    powers = [speed.power_w for speed in speeds if speed.power_w is not None]
    greatest_w = max([*powers, *(each.power_limit_w for each in settings if each.power_limit_w is not None)], default=None)
    known = Limits(replace(terms, settings=settings, max_power_w=greatest_w))
    for speed in speeds:
        known.measured(speed)
    return known
