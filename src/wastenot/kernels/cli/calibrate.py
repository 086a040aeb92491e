"""``wastenot device calibrate``: a simulated GPU from a sweep of a real one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import JsonOption, StudyOption, WorkloadOption

if TYPE_CHECKING:
    from rich.table import Table

    from wastenot.kernels.calibration.calibrate import CalibrationReport


def calibrate(
    study: StudyOption,
    out: Annotated[Path, option("The simulated GPU to write.", "FILE.toml")],
    workload: WorkloadOption = None,
    name: Annotated[str | None, option("Name of the GPU; by default that of the file.", "N")] = None,
    base: Annotated[
        str | None,
        option(
            "A simulated GPU to take thermal, sensor and latency parameters from.",
            "GPU",
            autocompletion=completing.simulated,
        ),
    ] = None,
    power_limit: Annotated[
        float | None, option("Power limit in effect during the sweep.", "W", parser=quantities.power)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a simulated GPU to a sweep.

    Reports its error on held-out points and kernels. Use it as --device sim:FILE.toml.
    """
    from wastenot.core.files import write_text
    from wastenot.core.values import as_values
    from wastenot.devices.simulated.preset import find_preset, preset_toml
    from wastenot.kernels.calibration.calibrate import calibrate_sweep
    from wastenot.study.store import open_study
    from wastenot.terminal.output import console, print_json, say

    if out.suffix != ".toml":
        raise BadInputError(f"--out {out}: the file of a simulated GPU must have a name that ends in .toml")
    calibrated = calibrate_sweep(
        open_study(study).read(workload),
        name=name or out.stem,
        power_limit_w=power_limit,
        base=None if base is None else find_preset(base.removeprefix("sim:")),
    )
    write_text(out, preset_toml(calibrated.preset))
    if as_json:
        print_json("calibrate", {"file": str(out), "name": calibrated.preset.name} | as_values(calibrated.report))
        return
    console().print(_table(calibrated.report))
    for warning in calibrated.report.warnings:
        say(f"warning: {warning}")
    fitted = f"{counted(calibrated.report.kernels, 'kernel')} from {counted(calibrated.report.points, 'point')}"
    say(f"{out}: {fitted}; use it as --device sim:{out}")


def _table(report: CalibrationReport) -> Table:
    from wastenot.terminal.tables import plain_table

    table = plain_table(("error on",), ("points", "time: median", "mean", "p90", "energy: median", "mean", "p90"))
    for errors in report.errors:
        spreads = (errors.time, errors.energy)
        numbers = [f"{value:.2%}" for spread in spreads for value in (spread.median, spread.mean, spread.p90)]
        table.add_row(errors.what, f"{errors.points:,}", *numbers)
    return table
