"""Profiles corrected by what a server publishes of its steps: ``wastenot serve profile ENGINE.json --from tcp://HOST:PORT``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError
from wastenot.terminal import quantities
from wastenot.terminal.option import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wastenot.serving.bench.forward_passes import Passes
    from wastenot.serving.bench.live_steps import Collected
    from wastenot.serving.model.corrected import Corrected


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Steps that a running server has recorded, or publishes now."""

    records: Annotated[
        str | None,
        option(
            "Correct the profile by the steps that a server has recorded, or by those it publishes now "
            "(ForwardPassMetrics of SGLang and Dynamo).",
            "STEPS.jsonl|tcp://HOST:PORT|ipc://PATH",
            flag="--from",
        ),
    ] = None
    duration: Annotated[
        float, option("How long to listen to a server.", "TIME", flag="--for", parser=quantities.seconds)
    ] = 600.0
    steps: Annotated[
        Path | None, option("Keep what a server publishes in this file; default: steps-DATE-TIME.jsonl.", "FILE.jsonl")
    ] = None

    @property
    def live(self) -> bool:
        """Whether they are to be heard from an address."""
        from wastenot.serving.bench.forward_passes import is_address

        return self.records is not None and is_address(self.records)


def heard_steps(
    what: list[str], device: str | None, degrees: Sequence[int] | None, core: Sequence[float] | None, asked: RecordOptions
) -> tuple[Corrected, Passes]:
    """A profile corrected by what a server publishes of its steps while this listens.

    Raises:
        BadInputError: an option or the address cannot be used, or too few steps were heard.
        MissingExtraError: the ``steps`` extra is not installed.
    """
    from time import strftime

    from wastenot.serving.bench.forward_passes import check_address
    from wastenot.serving.bench.live_steps import collect_steps
    from wastenot.serving.bench.step_log import clock_of
    from wastenot.serving.model.corrected import LEAST_STEPS, corrected
    from wastenot.serving.model.profile_file import read_engine
    from wastenot.terminal.option_rules import check_output
    from wastenot.terminal.output import say
    from wastenot.terminal.progress import shown_progress

    address = asked.records or ""
    check_address(address)
    if len(what) != 1 or not what[0].endswith(".json"):
        raise BadInputError(f"--from {address}: corrects a profile; write one first with --out, and give its file")
    if not 1.0 <= asked.duration <= 86_400.0:
        raise BadInputError(f"--for {asked.duration:g} s: must be at least 1 s and at most a day")
    clocks = core or ()
    if len(clocks) > 1 or (clocks and device is not None):
        raise BadInputError("--core: with --from ADDRESS give the one clock in effect, or --device, whose clock is read")
    file = Path(f"steps-{strftime('%Y%m%d-%H%M%S')}.jsonl") if asked.steps is None else asked.steps
    check_output(file, "steps")
    if file.exists():
        raise BadInputError(f"--steps {file}: is there; name another file, or give this one as --from")
    profile = read_engine(what[0])
    gpus = degrees or [profile.engine().gpus]
    if len(gpus) != 1 or (degrees is None and len(profile.engines) > 1):
        choices = ", ".join(str(each.gpus) for each in profile.engines)
        raise BadInputError(f"--degrees: say on how many GPUs the server runs; the profile has {choices}")
    engine = profile.engine(gpus[0])
    clock_mhz = clock_of(device)
    if clock_mhz is not None and clock_mhz() is None:
        raise BadInputError(f"--device {device}: does not say at which clock it runs; state that with --core MHZ instead")
    if device is None and not clocks:
        say("no clock is read: steps are taken to run at the default clocks; --device nvidia:0 reads it, --core states it")
    with shown_progress(f"steps of {address}") as progress:
        due = LEAST_STEPS
        progress.begin(round(asked.duration))
        shown = ""

        def tick(collected: Collected) -> None:
            nonlocal due, shown
            if len(collected) >= due:
                due = 2 * len(collected)
                shown = f", {_off_text(corrected(profile, collected.records))}"
            progress.step(f"{len(collected):,} steps{shown}" if collected.passes.heard else "nothing heard yet")

        collected = collect_steps(
            address,
            file,
            asked.duration,
            model=profile.model,
            gpus=engine.gpus,
            clock_mhz=clock_mhz,
            core_mhz=clocks[0] if clocks else None,
            tick=tick,
        )
    if not collected.passes.heard:
        raise BadInputError(
            f"--from {address}: nothing was heard; is the server there, and does it publish its steps (SGLang: "
            "--enable-forward-pass-metrics)?"
        )
    say(_collected_text(collected, file))
    if not len(collected):
        raise BadInputError(f"--from {address}: no steps were heard; send the server requests")
    return corrected(profile, collected.records), collected.passes


def _off_text(found: Corrected) -> str:
    """How far off a profile is, and would be: ``decode 12 → 3 % off``."""
    kinds = (
        f"{each.quantity.removesuffix(' time')} {100 * each.before_mean:.0f} → {100 * each.after_mean:.0f} %"
        for each in found.off
    )
    return f"{', '.join(kinds)} off"


def _collected_text(collected: Collected, file: Path) -> str:
    """What was heard, and where it is kept."""
    from wastenot.core.wording import counted

    passes, text = collected.passes, "stopped early; " if collected.interrupted else ""
    kept = len(collected)
    text += f"{file}: {counted(kept, 'step')}, which --from {file} reads again" if kept else "no steps"
    if len(passes.ranks) > 1:
        text += f"; of {len(passes.ranks)} ranks"
    if passes.lost:
        text += f"; {counted(passes.lost, 'message')} lost on the way"
    if passes.restarts:
        text += f"; {counted(passes.restarts, 'restart')} of the server"
    if refused := sum(passes.refused.values()):
        reasons = ", ".join(f"{count:,} by {reason}" for reason, count in passes.refused.most_common())
        text += f"; {counted(refused, 'message')} left out ({reasons})"
    if collected.without_clock:
        text += f"; {counted(collected.without_clock, 'step')} left out while the clock changed or could not be read"
    if collected.dropped:
        text += f"; {counted(collected.dropped, 'step')} not written"
    return text
