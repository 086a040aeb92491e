"""The page of a run, as HTML and as figure files."""

from __future__ import annotations

from datetime import UTC, datetime

from wastenot.control.page.close_up_figure import close_up_figure
from wastenot.control.page.estimates_figure import estimates_figure, saving_figure
from wastenot.control.page.next_step import next_step
from wastenot.control.page.passes_table import passes_table
from wastenot.control.page.search_figure import search_figure
from wastenot.control.page.story import model_text, proxy_text, story_of
from wastenot.control.page.tables import events_table, gpus_table
from wastenot.control.page.time_line_figure import how_run, subtitle, time_line_figure
from wastenot.control.page.trials import trials_table
from wastenot.control.rehearsed import rehearsal_lines
from wastenot.control.status import Status, Summary
from wastenot.core.wording import sentence
from wastenot.pages.figure import Figure
from wastenot.pages.formatting import duration
from wastenot.pages.page import Folded, Page

_OVER_TIME = ("applied-time-line", "applied-estimates")  # after the clocks that are set, which say what saves
_WARNS = ("refused", "drift", "stepped")


def applied_figures(summary: Summary) -> tuple[Figure, ...]:
    """The figures, in the order they are shown; of those with nothing to draw only the first, which says why.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    if summary.status.rehearsal is not None:  # whose passes draw nothing
        others: tuple[Figure, ...] = (close_up_figure(summary),)
    else:
        others = (estimates_figure(summary), close_up_figure(summary))
    saving = None if summary.status.rehearsal is not None else saving_figure(summary)
    first = () if saving is None else (saving,)
    search = (search_figure(summary),) if summary.trials else ()
    return *first, *search, time_line_figure(summary), *(figure for figure in others if figure.specification is not None)


def applied_page(summary: Summary) -> Page:
    """The page of a run; errors are those of :func:`applied_figures`."""
    status = summary.status
    tone, effect, verdict, panels = story_of(summary)
    first = next(iter(status.gpus), None)
    device = first.device if first else ""
    tuned = status.tuning is not None
    begun = datetime.fromtimestamp(status.started_unix_s, UTC)
    return Page(
        verb="tune" if tuned else "apply",
        brand="rehearsal" if status.rehearsal is not None else "setting tuned" if tuned else "plan applied",
        title=(status.workload, f"on {device or 'no GPU'}{', ' if tuned else ' '}{how_run(status)}"),
        origin=status.origin,
        effect=effect,
        verdict=verdict,
        panels=panels,
        next_step=next_step(summary),
        figures=sorted(applied_figures(summary), key=lambda figure: figure.name in _OVER_TIME),
        tables=[
            *([] if status.rehearsal is not None else [("passes", passes_table(summary))]),
            ("events", events_table(summary)),
            ("gpus", gpus_table(summary)),
        ],
        folded=_settings_tried(summary),
        tone=tone,
        notes=[sentence(text) for text in (*_warnings(status), *rehearsal_lines(status))],
        about=subtitle(summary),
        device=device,
        made_from=(
            *(() if tuned else (("Plan", f"{status.plan}, digest {status.plan_digest}"),)),
            ("Workload", status.workload),
            ("GPUs", ", ".join(f"{gpu.device}: {model_text(gpu)}, {gpu.unique_id}" for gpu in status.gpus)),
            ("Began", f"{begun:%Y-%m-%d %H:%M:%S} UTC, controlled by process {status.process}"),
            ("Ran", f"{duration(status.elapsed_s)}{' of simulated time' if status.origin == 'simulated' else ''}"),
        ),
    )


def _settings_tried(summary: Summary) -> Folded | None:
    """Every setting of a search, of which the figure shows most; ``None`` where there was none."""
    table = trials_table(summary)
    about = "every one, with its change in energy and time"
    return None if table is None else Folded("Settings tried", about, (), [("trials", table)])


def _warnings(status: Status) -> list[str]:
    by_proxy = [] if status.proxy is None else [proxy_text(status.proxy)]
    return [*by_proxy, *(event.text for event in status.events if event.kind in _WARNS)]
