"""What pages and terminals say of any simulated run: what it rests on, and how far it may be off."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.core.origin import Origin
from wastenot.core.wording import listed
from wastenot.pages.formatting import SPACE, percent
from wastenot.serving.model.band import Band
from wastenot.serving.model.engine import Engine


def steps_text(engines: Sequence[Engine]) -> str:
    """What the steps of simulated engines rest on."""
    said = []
    for tables in (each.tables for each in engines):
        what = "kernels" if tables.source == "kernels" else "steps"
        if tables.evidence == "forecast":
            said.append(f"steps forecast from {what}")
        elif tables.source == "measured":
            said.append(f"steps {tables.evidence}")
        else:
            how = "estimated from" if tables.source == "kernels" else "fitted to"
            said.append(f"steps {how} {tables.evidence} {what}")
    return ", ".join(dict.fromkeys(said))


def clocks_note(engines: Sequence[Engine], *, used: bool) -> str | None:
    """What to know of clocks at which steps are assumed; ``None`` where there are none.

    Args:
        engines: as they were run.
        used: whether such clocks could be chosen.
    """
    limit = max((each.assumed_below_mhz for each in engines if each.assumed_below_mhz is not None), default=None)
    if limit is None:
        return None
    at = f"{limit:,.0f}{SPACE}MHz"
    if not any(each.known_settings for each in engines):
        return f"all clocks are assumed: the simulated GPU was fitted to measurements from {at} up only"
    known = [each.tables.settings[place].core_mhz for each in engines for place in each.known_settings]
    lowest = min((mhz for mhz in known if mhz is not None), default=limit)
    first = f" ({lowest:,.0f}{SPACE}MHz is the lowest profiled)" if lowest > limit else ""
    if used:
        return f"known clocks are those from {at} up{first}: below, the simulated GPU was fitted to no measurement"
    return (
        f"only clocks from {at} up are used{first}: below, the simulated GPU rests on no measurement (--assumed-clocks adds "
        "those)"
    )


def simulated_origin(engines: Sequence[Engine]) -> Origin:
    """A run of the simulator is simulated, whatever its steps rest on; on a forecast it is one."""
    return "forecast" if any(each.tables.evidence == "forecast" for each in engines) else "simulated"


def waits_text(waits_s: Sequence[float | None]) -> str:
    """Waits by kind of prompt, in milliseconds."""
    return " / ".join("–" if each is None else f"{1e3 * each:,.0f}" for each in waits_s) + f"{SPACE}ms"


def band_text(found: Band) -> str:
    """What a saving becomes with other assumptions."""
    missed = [each.what for each in found.varied if each.failed]
    text = f"{listed([each.what for each in found.varied])}, each changed alone: {found.policy} saves"
    late = f"; too many requests are late with {listed(missed)}" if missed else ""
    return f"with {text} {percent(found.low, 1)} to {percent(found.high, 1)}{late}"


def by_deadline_note(policy: str, met: tuple[float, float], energy: float) -> str:
    """What prefill by deadline adds.

    Args:
        policy: of which.
        met: share of the requests that met their deadlines, first come, first served and by deadline.
        energy: by deadline, over that first come, first served.
    """
    first, then = met
    return (
        f"prompts are prefilled by deadline, which no stock engine offers: with {policy} it changes the deadlines met by "
        f"{100 * (then - first):+.2f} points, to {percent(then, 2)}, and the energy by {100 * (energy - 1):+.1f}{SPACE}%, "
        "compared with first come, first served"
    )
