"""An applied plan in one line: ``saved 8.1 ± 0.5 %, time +0.1 ± 0.2 %, 3.2 kWh since 09:14``."""

from __future__ import annotations

import math
from datetime import datetime

from wastenot.control.page.story import applied_s, negated, plus_minus, saved_text
from wastenot.control.status import Rehearsal, Status, Tuning
from wastenot.core.wording import counted
from wastenot.pages.formatting import duration, percent


def live_text(status: Status) -> str:
    """What an applied plan has achieved by now."""
    if status.rehearsal is not None and status.pipeline is None:
        return _rehearsed(status, status.rehearsal)
    parts = [_effect(status)]
    saved = status.proof.saved_j
    amount = "" if saved is None or status.dry_run else f"{saved_text(saved.value)} saved "
    parts.append(f"{amount}{_span(status)}")
    if status.rung > 0:
        last = status.rung == status.rungs - 1
        parts.append(
            "at the default clocks, to stay within the slowdown limit" if last else f"{counted(status.rung, 'step')} faster"
        )
    if status.proxy is not None:
        parts.append(f"by proxy (memory traffic, ± {percent(math.expm1(status.proxy.error), 1)})")
    if status.rehearsal is not None:
        parts.append("rehearsal, nothing is measured")
    elif status.origin != "measured":
        parts.append(status.origin)
    return ", ".join(parts)


def _span(status: Status) -> str:
    """Since when clocks have been applied; of a simulated job, whose time is not that of the wall, for how long."""
    since_s, lasted_s = applied_s(status)
    if status.origin == "simulated":
        return f"in {duration(lasted_s)}"
    return f"since {datetime.fromtimestamp(status.started_unix_s + since_s).astimezone():%H:%M}"


def _effect(status: Status) -> str:
    done = 0 if status.iteration is None else status.iteration
    proof = status.proof
    if status.tuning is not None and (not status.tuning.done or proof.energy_change is None):
        return _tuning(status.tuning, done)
    if status.dry_run:
        predicted = f"{percent(-status.predicted_energy_change)} predicted saving"
        return f"dry run, nothing is set: {predicted}, {counted(done, 'iteration')}"
    known = status.at_default or proof.energy_change is not None
    if status.pipeline is not None and status.pipeline.iteration_s is not None and not known:
        took_s, planned_s = status.pipeline.iteration_s, status.pipeline.planned_s
        predicted = f"{percent(-status.predicted_energy_change)} predicted saving"
        return f"an iteration takes {took_s:.3g} s, planned {planned_s:.3g} s, {predicted}, {counted(done, 'iteration')}"
    if any(event.kind == "refused" for event in status.events):
        return "not the plan's workload: it runs at the default clocks"
    if proof.energy_change is None or proof.time_change is None:
        where = "" if status.iteration is not None else ": waiting for the first"
        return f"no estimate yet, {counted(done, 'iteration')}{where}"
    energy = proof.energy_change
    saved = negated(energy)
    what = f"saved {plus_minus(saved, sign=False)}" if saved.value >= 0.0 else f"used {plus_minus(energy, sign=False)} more"
    return f"{what}, time {plus_minus(proof.time_change)}"


def _rehearsed(status: Status, rehearsal: Rehearsal) -> str:
    """What a program has reached beside a simulated GPU."""
    tried = "" if status.tuning is None else f", {counted(status.tuning.tried, 'setting')} tried"
    seen = f"{counted(max(rehearsal.iterations), 'iteration')} seen{tried}"
    return f"rehearsal: {seen}, clocks requested {rehearsal.requests:,} times {_span(status)}, nothing is measured"


def _tuning(tuning: Tuning, iterations: int) -> str:
    """How far the search for a setting has come."""
    state = "" if tuning.done else f"tuning, iteration {iterations:,}: "
    what = f"{counted(tuning.tried, 'setting')} tried"
    if tuning.best is None or tuning.energy_change is None or tuning.time_change is None:
        none = "none saves energy: the default clocks stay" if tuning.done else "none is known to save energy yet"
        return f"{state}{what}, {none}"
    saved = plus_minus(negated(tuning.energy_change), sign=False)
    left = "" if tuning.done or tuning.left < 2 else f", {tuning.left} still being compared"
    return f"{state}{what}{left}, best {tuning.best}: saves {saved}, time {plus_minus(tuning.time_change)}"
