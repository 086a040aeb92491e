"""What a run under a plan says in ten seconds: what was saved, whether the slowdown was kept, and what both rest on."""

from __future__ import annotations

import math
from dataclasses import replace

from wastenot.control.page.trials import held_of, still_held, trial_words
from wastenot.control.rehearsed import missing_text
from wastenot.control.status import Estimate, GpuStatus, Proxy, Rehearsal, Status, Summary, Trial, Tuning
from wastenot.core.origin import Origin
from wastenot.core.wording import counted
from wastenot.pages.formatting import (
    SPACE,
    change,
    changes,
    digits_within,
    duration,
    number,
    pace,
    percent,
    quantity,
    saved_range,
)
from wastenot.pages.panel import Line, Panel, Tone
from wastenot.pages.price import energy_text

_ENDS = {
    "job ended": "the job ended",
    "stopped": "it was stopped",
    "refused": "the plan was refused",
    "failed": "the job failed",
}
_WHOSE: dict[Origin, str] = {
    "measured": "measured while the job ran",
    "simulated": "on a simulated GPU",
    "synthetic": "synthetic, for a demonstration",
    "forecast": "forecast",
}


_SOLD_J = 3.6e5  # from which on energies are also told in kilowatt-hours


def story_of(summary: Summary) -> tuple[Tone, str, str, tuple[Panel, ...]]:
    """How sure the outcome is, the headline, its verdict, and three panels."""
    status = summary.status
    if status.rehearsal is not None:
        effect, verdict = _rehearsed(summary, status.rehearsal)
        return "neutral", effect, verdict, _rehearsed_panels(summary, status.rehearsal)
    tone, verdict = _verdict(summary)
    held = still_held(summary)
    saved, time, basis = _saved(status), _time(summary), _basis(summary)
    if held is None or status.tuning is None:
        return tone, _effect(summary), verdict, (saved, time, basis)
    time = replace(time, lines=(*time.lines, Line("Compared", basis.text)))
    return tone, _effect(summary), verdict, (saved, _found(held, status.tuning, applied_s(status)[0]), time)


def applied_s(status: Status) -> tuple[float, float]:
    """Since when clocks of a plan have been applied, after a search for them if there was one, and for how long."""
    since_s = max((event.at_s for event in status.events if event.kind == "started"), default=0.0)
    return since_s, status.elapsed_s - since_s


def _found(held: Trial, tuning: Tuning, search_s: float) -> Panel:
    """The setting that a search found."""
    auto = [name for name, value in (("core clock", held.core_mhz), ("memory clock", held.memory_mhz)) if value is None]
    what = f"the best of {counted(tuning.tried, 'setting')} tried; {' and '.join(auto)} left to the driver."
    took = f"{counted(tuning.iterations, 'iteration')} in {duration(search_s)}, {tuning.trials:,} comparisons"
    lines = [Line("Search", f"{took}; what was saved counts from its end")]
    if tuning.regret is not None:
        lines.append(Line("Any other setting would save", f"at most {percent(tuning.regret, 1)} more"))
    return Panel("Setting found", trial_words(held), what, lines=tuple(lines))


def plus_minus(estimate: Estimate, *, sign: bool = True, tight: float = 5e-4) -> str:
    """An estimate with half its interval, such as ``+0.1 ± 0.2 %``, to two digits where that is less than ``tight``."""
    half = 0.5 * (estimate.high - estimate.low)
    shown = 1 if half >= tight else 2
    value = percent(estimate.value, shown, sign=sign).removesuffix(f"{SPACE}%")
    return f"{value}{SPACE}±{SPACE}{percent(half, shown)}"


def interval(estimate: Estimate, digits: int = 2) -> str:
    """The 95 % interval of a change."""
    return f"{change(estimate.low, digits)} to {change(estimate.high, digits)}"


def _effect(summary: Summary) -> str:
    status, proof = summary.status, summary.status.proof
    if status.dry_run:
        return f"A dry run of {duration(status.elapsed_s)}: no clock was set"
    if summary.ended == "refused":
        return "The plan was refused, and the job ran at its default clocks"
    if _went_back(status) and proof.saved_j is None:
        searched = status.tuning is not None and status.tuning.done and held_of(summary) is None
        nothing = "No setting tried saves energy within the slowdown limit"
        return nothing if searched else "Returned to the default clocks before the saving was known"
    if proof.energy_change is None or proof.time_change is None:
        return f"Ran for {duration(status.elapsed_s)}, too short to estimate the saving"
    if _went_back(status) and proof.saved_j is not None:
        return f"Saved {_joules(proof.saved_j.value)}, then returned to the default clocks"
    slower = proof.time_change.value >= 0.0
    pace = plus_minus(proof.time_change if slower else negated(proof.time_change), sign=False, tight=1e-3)
    return f"{_saving(summary, proof.energy_change)}, {pace} {'slower' if slower else 'faster'}"


def _saving(summary: Summary, energy_change: Estimate) -> str:
    """What an iteration saves, by the setting that a search found where there was one."""
    saves = energy_change.value < 0.0
    energy = plus_minus(negated(energy_change) if saves else energy_change, sign=False)
    held = still_held(summary)
    if held is not None and saves:
        core_alone = held.core_mhz is not None and held.memory_mhz is None and held.power_limit_w is None
        return f"{'A core clock of ' if core_alone else ''}{trial_words(held)} saves {energy} of the energy"
    return f"Saved {energy} of the energy" if saves else f"Used {energy} more energy"


def _went_back(status: Status) -> bool:
    """Whether the job ended at the default clocks, where nothing is saved."""
    return status.rung == status.rungs - 1


def negated(estimate: Estimate) -> Estimate:
    """What is saved, of a change, and the other way round."""
    return Estimate(value=-estimate.value, low=-estimate.high, high=-estimate.low)


def _verdict(summary: Summary) -> tuple[Tone, str]:
    status = summary.status
    if status.dry_run:
        return "neutral", "only the plan's prediction is available"
    if summary.ended == "refused":
        return "neutral", "the program that ran is not what the plan was made for"
    if status.rungs == 1:
        return "neutral", "the plan has no other clocks"
    return _kept(status, status.proof.time_change)


def _kept(status: Status, time: Estimate | None) -> tuple[Tone, str]:
    """Whether the slowdown was kept at the clocks of the end."""
    bound = bound_text(status)
    if _went_back(status):
        return "undecided", f"none of the plan's clocks stayed within the slowdown limit of {bound}, {_WHOSE[status.origin]}"
    if time is None:
        return "undecided", f"whether the slowdown stays within {bound} is unknown"
    since = "since the last step along the frontier, " if any(each.kind == "stepped" for each in status.events) else ""
    where = f"{since}{_WHOSE[status.origin]}{', by proxy' if status.proxy is not None else ''}"
    if time.high <= status.max_slowdown:
        return "kept", f"{_no_slower(status)}, with 95{SPACE}% confidence, {where}"
    if time.low > status.max_slowdown:
        return "missed", f"slower than the limit of {bound}, {where}"
    likely = _no_slower(status) if time.value <= status.max_slowdown else f"slower than the limit of {bound}"
    return "undecided", f"probably {likely}, but not certain yet: {interval(time)}, {where}"


def _no_slower(status: Status) -> str:
    """That a slowdown limit is kept."""
    return (
        f"within the slowdown limit of {bound_text(status)}" if status.max_slowdown else "no slower than the default clocks"
    )


def bound_text(status: Status) -> str:
    """The slowdown that is kept, such as ``2 %``."""
    return f"{100.0 * status.max_slowdown:.3g}{SPACE}%"


def proxy_text(proxy: Proxy) -> str:
    """What figures by proxy rest on."""
    known = f"as in {counted(proxy.jobs, 'job')} that reported theirs" if proxy.jobs else "assumed"
    unit = "" if proxy.unit_s is None else f" of {duration(proxy.unit_s)}"
    return (
        f"by proxy: the program reports no iterations, and units{unit} of memory traffic stand for them; all figures may be "
        f"off by {percent(math.expm1(proxy.error), 1)}, {known}"
    )


def _saved(status: Status) -> Panel:
    proof, searched = status.proof, status.tuning is not None
    since_s, lasted_s = applied_s(status)
    within = f"in {'the ' if since_s else ''}{duration(lasted_s)}{' after the search' if since_s else ''}"
    used = [gpu.energy_j for gpu in status.gpus if gpu.energy_j is not None]
    compared = "; blocks at the default clocks included" if proof.default_iterations else ""
    lines = [Line("Used", f"{_joules(sum(used))}, {counted(len(used), 'GPU')}{compared}")] if used else []
    if not searched:  # whose prediction comes from the same job
        lines.append(Line("Predicted", f"{percent(-status.predicted_energy_change, 1)} saved"))
    saved, energy = proof.saved_j, proof.energy_change
    if saved is not None:
        sold = f" ({energy_text(saved.value)})" if abs(saved.value) >= _SOLD_J else ""
        amount = f"{_joules(saved.value)}{sold} {within}; {_joules(saved.low)} to {_joules(saved.high)} (95{SPACE}%)"
        lines.insert(0, Line("Saved", amount))
    if energy is None:
        return Panel("Saved", "unknown" if saved is None else _joules(saved.value), f"{within}.", lines=tuple(lines))
    within = saved_range((energy.low, energy.high), name="change")
    text = f"compared with the default clocks; {within} (95{SPACE}%)."
    value = percent(abs(energy.value), digits_within((energy.low, energy.high)))
    value += " saved" if energy.value <= 0.0 else " more"
    return Panel("Energy per iteration", value, text, lines=tuple(lines))


def saved_text(energy_j: float) -> str:
    """An amount of energy in the unit that suits it: as electricity is sold from 0.1 kWh on, else in joules."""
    return energy_text(energy_j) if abs(energy_j) >= _SOLD_J else _joules(energy_j)


def _joules(energy_j: float) -> str:
    """An energy to three digits: ``420 J``, ``4.20 kJ``."""
    return f"{number(1e-3 * energy_j, 3)}{SPACE}kJ" if 1e3 <= abs(energy_j) < 1e6 else quantity(energy_j, "J", 3)


def _time(summary: Summary) -> Panel:
    status, time = summary.status, summary.status.proof.time_change
    lines = [
        Line("Slowdown allowed", bound_text(status) if status.max_slowdown else "none"),
        *([] if status.tuning is not None else [Line("Predicted", pace(status.predicted_time_change))]),
    ]
    if summary.ended == "refused" or status.rung:
        final = "the default clocks" if summary.ended == "refused" else rung_text(status.rung, status.rungs)
        lines.append(Line("Final clocks", final))
    if time is None:
        return Panel("Time per iteration", "unknown", "compared with the default clocks.", lines=tuple(lines))
    within = (time.low, time.high)
    expected = changes(within) if time.high >= 0.0 else saved_range(within, what="faster")
    text = f"compared with the default clocks; {expected} (95{SPACE}%)."
    return Panel("Time per iteration", pace(time.value, digits_within(within)), text, lines=tuple(lines))


def _rehearsed(summary: Summary, rehearsal: Rehearsal) -> tuple[str, str]:
    """Headline and verdict of a rehearsal, which saves nothing."""
    status, seen = summary.status, max(rehearsal.iterations)
    set_text = "no clock was requested" if status.dry_run else f"clocks requested {rehearsal.requests:,} times"
    effect = f"A rehearsal of {duration(status.elapsed_s)}: {counted(seen, 'iteration')} seen, {set_text}"
    verdict = "the program and the requests are real; the GPU is simulated and ran nothing, so no saving was measured"
    return effect, verdict


def _rehearsed_panels(summary: Summary, rehearsal: Rehearsal) -> tuple[Panel, ...]:
    status = summary.status
    took_s = rehearsal.iteration_s
    lines = (
        Line("Predicted for the plan's workload", change(status.predicted_energy_change)),
        Line("Power shown below", "simulated, of an idle GPU"),
    )
    saved = Panel("Saved", "not measured", "A rehearsal cannot tell what the program would save.", lines=lines)
    passes = tuple(Line(name, f"{count:,} times") for name, count in rehearsal.passes.items())
    seen = Panel(
        "What the hooks saw",
        counted(max(rehearsal.iterations), "iteration"),
        "none twice"
        if took_s is None
        else f"of {quantity(1e3 * took_s, 'ms', 3)}, the median of the latest, as the program runs here.",
        lines=(*passes, Line("Layers", "not known" if rehearsal.layers is None else f"{rehearsal.layers:,}")),
    )
    code = "" if summary.exit_code is None else f", exit code {summary.exit_code}"
    missing = Panel(
        "What they missed",
        counted(len(rehearsal.missing), "marker") if rehearsal.missing else "nothing",
        missing_text(rehearsal) or "Every pass of the plan was seen.",
        lines=(Line("GPU", ", ".join(gpu.device for gpu in status.gpus)), Line("End", f"{_ENDS[summary.ended]}{code}")),
    )
    return saved, seen, missing


def model_text(gpu: GpuStatus) -> str:
    """A GPU's model, marked where it is simulated."""
    simulated = gpu.device.startswith("sim:") and "simulated" not in gpu.model
    return f"simulated {gpu.model}" if simulated else gpu.model


def rung_text(rung: int, rungs: int) -> str:
    """What a rung is, in words."""
    if rung == rungs - 1:
        return "the default clocks"
    return "the plan's" if rung == 0 else f"{counted(rung, 'step')} faster than the plan's"


def _basis(summary: Summary) -> Panel:
    status, proof = summary.status, summary.status.proof
    done = status.iteration or 0
    where = "the plan's clocks" if status.tuning is None else "this setting"
    counts = f"{proof.plan_iterations:,} iterations at {where} against {proof.default_iterations:,} at the default clocks"
    searched = 0 if status.tuning is None else status.tuning.iterations
    left = done - searched - proof.plan_iterations - proof.default_iterations
    uncounted = f"; {left:,} more are not counted (warm-up, pauses)" if left > 0 else ""
    text = f"{counts}, in {counted(proof.blocks, 'block')} in random order{uncounted}."
    code = "" if summary.exit_code is None else f", exit code {summary.exit_code}"
    lines = (
        Line("GPU", ", ".join(dict.fromkeys(map(model_text, status.gpus))) or "none"),
        Line("End", f"{_ENDS[summary.ended]}{code}"),
    )
    return Panel("Basis", counted(done, "iteration"), text, lines=lines)
