"""All figures of power profiles, in the order they are shown, and the files they are exported to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from wastenot.errors import BadInputError
from wastenot.origin import Origin
from wastenot.profiling.result import Profile
from wastenot.reporting.figure import Figure
from wastenot.reporting.plan.figures import write_files
from wastenot.reporting.profile.compare_figures import components_figure, shapes_figure
from wastenot.reporting.profile.context_figure import contexts_figure
from wastenot.reporting.profile.inside_figure import inside_figure
from wastenot.reporting.profile.method_figure import method_figure
from wastenot.reporting.profile.run_figure import run_figure


def draw_profiles(profiles: Sequence[Profile], *, relative: bool = False) -> tuple[Figure, ...]:
    """Of one profile what is in it; of several what sets them apart.

    Args:
        profiles: one or more.
        relative: power of several as a share of the largest, instead of watts.

    Raises:
        BadInputError: there is none.
        MissingExtraError: the ``report`` extra is not installed.
    """
    if not profiles:
        raise BadInputError("no power profile was given; make one with 'wastenot profile --out'")
    if len(profiles) == 1:
        return run_figure(profiles[0]), inside_figure(profiles[0]), method_figure(profiles[0])
    return (
        components_figure(profiles, relative=relative),
        shapes_figure(profiles, relative=relative),
        contexts_figure(profiles),
    )


def origin_of(profiles: Sequence[Profile]) -> Origin:
    """Where the numbers come from: ``measured`` only if all are."""
    return next((profile.origin for profile in profiles if profile.origin != "measured"), "measured")


def write_profile_figures(
    profiles: Sequence[Profile], folder: str | os.PathLike[str], *, relative: bool = False
) -> list[Path]:
    """Write each figure as SVG, PDF and PNG; those with nothing to draw are left out.

    Raises:
        BadInputError: the folder or a file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    return write_files(draw_profiles(profiles, relative=relative), origin_of(profiles), folder)
