"""What a plan saves, in the program's own TensorBoard, W&B or MLflow run, beside its loss."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from wastenot.control.harmless import Harmless
from wastenot.control.status import Status
from wastenot.core.errors import BadInputError, WastenotError

_KINDS = "TensorBoard's SummaryWriter, what wandb.init() returned, or the module mlflow"


def scalars(status: Status) -> dict[str, float]:
    """What is logged of a status: names under ``wastenot/`` and values; what is not known is left out.

    Values that are not measured say so in their names: ``wastenot (simulated)/saved_j``.
    """
    proof = status.proof
    values: dict[str, float | None] = {"rung": status.rung, "at_default": float(status.at_default)}
    for name, estimate in (
        ("saved_j", proof.saved_j),
        ("time_change", proof.time_change),
        ("energy_change", proof.energy_change),
    ):
        if estimate is not None:
            values |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    for gpu in status.gpus:
        values |= {
            f"power_w/{gpu.device}": gpu.power_w,
            f"energy_j/{gpu.device}": gpu.energy_j,
            f"core_mhz/{gpu.device}": gpu.core_mhz,
            f"target_core_mhz/{gpu.device}": gpu.target_core_mhz,
        }
    origin = "" if status.origin == "measured" else f" ({status.origin})"
    return {f"wastenot{origin}/{name}": value for name, value in values.items() if value is not None}


def tracker(
    status: Callable[[], Status], *writers: Any, every_s: float = 10.0, now_s: Callable[[], float] = time.monotonic
) -> Callable[[int], None]:
    """A callback for a training loop that logs what the plan saves.

    with wn.apply("plan.json") as applied:
        log = wn.tracker(applied.status, SummaryWriter())
        for step, batch in enumerate(batches):
            ...
            log(step)

    Calls in between cost a look at the clock. What fails is reported once, and the program continues. With several ranks,
    only the one that logs the loss should call it.

    Args:
        status: the present status, such as ``applied.status``.
        writers: where to log: TensorBoard's ``SummaryWriter`` (of PyTorch or tensorboardX), a run of W&B, the module
            ``mlflow``, or several.
        every_s: seconds between two entries at least.
        now_s: a clock.

    Returns:
        The callback; it takes the step that the program itself gives to its writer.

    Raises:
        BadInputError: no writer is given, or one is of none of these kinds.
    """
    if not writers:
        raise BadInputError(f"`writers`: none given; pass {_KINDS}")
    write = [_writing(writer) for writer in writers]
    last_s: float | None = None
    harmless = Harmless(consequence="nothing more is logged of the plan, and the program continues")

    def log(step: int) -> None:
        harmless.call(log_latest, step)

    def log_latest(step: int) -> None:
        nonlocal last_s
        now = now_s()
        if last_s is not None and now - last_s < every_s:
            return
        last_s = now
        try:
            values = scalars(status())
        except WastenotError:  # the plan has ended, or its session is gone: nothing to log, and no reason to end a job
            return
        for each in write:
            each(values, step)

    return log


def _writing(writer: Any) -> Callable[[dict[str, float], int], None]:
    """How to write values to a writer, found by what it can do, so that none of the libraries is imported here."""
    if callable(getattr(writer, "add_scalar", None)):

        def to_tensorboard(values: dict[str, float], step: int) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)

        return to_tensorboard
    if callable(getattr(writer, "log", None)) and callable(getattr(writer, "define_metric", None)):
        return lambda values, step: writer.log(values, step=step)  # joins what the program logs at this step
    if callable(getattr(writer, "log_metrics", None)):
        return lambda values, step: writer.log_metrics(
            {re.sub(r"[^\w./: -]", "", name): value for name, value in values.items()}, step=step
        )
    raise BadInputError(f"`writers`: {type(writer).__name__} is none of these: {_KINDS}")
