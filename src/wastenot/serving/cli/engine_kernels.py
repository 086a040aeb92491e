"""``wastenot serve profile MODEL --device D``: a profile from the kernels of a device, measured now or kept in a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from wastenot.terminal.options import ClockControlOptions, parse_counts

if TYPE_CHECKING:
    from wastenot.serving.model.profile_file import EngineProfile


def profile_by_kernels(
    model: str,
    device: str | None,
    *,
    degrees: str,
    study: str | None,
    clocks: Literal["grid", "auto"],
    curves: str | None,
    memory_gb: float | None,
    clock_control: ClockControlOptions,
    seed: int,
) -> EngineProfile:
    """Measure the kernels of a model's steps, with progress, and put the profile together.

    Args:
        model: such as ``llama-8b``.
        device: to measure on.
        degrees: parallel degrees, separated by commas.
        study: that keeps the measurements and resumes; ``None`` to keep none.
        clocks: whether to measure at several clocks, or at the card's own only.
        curves: the simulated GPU whose curves by clock are taken, where ``clocks`` is ``auto``.
        memory_gb: of a card; ``None`` for what is known of it.
        clock_control: whether clocks of a real GPU may be changed.
        seed: of a simulated device.

    Raises:
        BadInputError: there is no such model or device, or the model does not fit into its memory.
        ClocksRefusedError: the clocks may not be set.
        DeviceError: the device does not measure.
    """
    import shlex
    import sys

    from wastenot.core.errors import BadInputError
    from wastenot.serving.model.engine_kernels import CORE_STEP_MHZ, profile_from_kernels
    from wastenot.study.store import open_study
    from wastenot.terminal.output import typed_command
    from wastenot.terminal.progress import kept_if_interrupted, resume_with, shown_progress
    from wastenot.workloads.named import find_model

    wanted = parse_counts("--degrees", degrees)
    find_model(model)
    if device is None:
        raise BadInputError(
            f"{model}: name the device to measure its kernels on, such as --device sim:h200 or nvidia:0; or give a table of "
            "steps (FILE.csv) or a profile to show (FILE.json)"
        )
    target = clock_control.open_device(device, seed=seed, workload=None)
    command = typed_command(study) if study is not None else shlex.join(["wastenot", *sys.argv[1:]])
    kept = resume_with(command, study) if study is not None else "nothing was kept; --study FILE keeps what is measured"
    with kept_if_interrupted(kept), shown_progress(f"kernels of {model}") as progress:
        return profile_from_kernels(
            model,
            target,
            None if study is None else open_study(study, create=True),
            degrees=wanted,
            core_step_mhz=CORE_STEP_MHZ if clocks == "grid" else None,
            curves=curves,
            memory_bytes=None if memory_gb is None else 1e9 * memory_gb,
            progress=progress,
            command=command,
        )
