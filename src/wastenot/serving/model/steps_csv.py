"""Tables of measured steps, read from CSV files: our own form, and three that others have published.

Our own has a row for each step measured (repeats are welcome), and may have rows of the idle GPUs:

    phase,sequences,tokens,context,core_mhz,time_s,power_w
    prefill,1,1024,0,1980,0.0412,655
    decode,64,1,2048,1980,0.0183,512
    idle,,,,1980,,118

``energy_j`` may stand for ``power_w``; ``tokens`` (of each sequence; 1 in a decode step), ``context``, ``memory_mhz``,
``power_limit_w`` and ``gpus`` may be left out; clocks that are blank are automatic; ``origin`` may
say ``simulated``. The published forms are known by their
columns: pdblend's (https://github.com/zydzydQAQ/pdblend), one file for each phase; splitwise's
(https://github.com/Mutinifni/splitwise-sim), times only; and ML.ENERGY's (https://ml.energy), decoding in a steady state.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.core.suggest import listed, suggestion
from wastenot.serving.model.steps import MeasuredStep, Phase
from wastenot.study.csv_text import check_text, origin_of, plain_number, quoting_problem

FORM: Final = "phase,sequences,tokens,context,core_mhz,time_s,power_w"
_REMEDY: Final = f"a table of steps has the columns {FORM}"


@dataclass(frozen=True, slots=True)
class StepTable:
    """Measured steps of one model on one device.

    Attributes:
        model: as the table says; empty where it does not.
        device: the same.
        steps: that were measured.
        idle_power_w: of all GPUs with nothing to do, by setting and parallel degree, where it was measured.
        notes: caveats for the reader.
        origin: whether the steps were measured.
    """

    model: str
    device: str
    steps: tuple[MeasuredStep, ...]
    idle_power_w: dict[tuple[Setting, int], float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    origin: Literal["measured", "simulated"] = "measured"


def read_step_tables(
    paths: Iterable[str | os.PathLike[str]], *, model: str | None = None, device: str | None = None
) -> StepTable:
    """Read the steps of one model on one device from one or several files.

    Args:
        paths: of CSV files.
        model: which, where a table has several; by default the only one.
        device: which, in the same way.

    Raises:
        BadInputError: a file cannot be read, or a row breaks a rule (names file, line and column); several models or devices
            and none chosen.
    """
    tables = [table for path in paths for table in step_tables_in(path)]
    for what, wanted in (("model", model), ("device", device)):
        named = sorted({getattr(each, what) for each in tables} - {""})
        if wanted is None:
            if len(named) > 1:
                raise BadInputError(f"the table has several {what}s; choose one with `{what}`: {listed(named)}")
        elif named:
            if wanted not in named:
                like = [each for each in named if wanted.lower() in each.lower()] or named
                raise BadInputError(f"`{what}` {wanted}: the table has none; {suggestion(wanted, like)}")
            tables = [each for each in tables if getattr(each, what) in ("", wanted)]
    steps = tuple(step for each in tables for step in each.steps)
    return StepTable(
        next((each.model for each in tables if each.model), model or ""),
        next((each.device for each in tables if each.device), device or ""),
        steps,
        {key: power for each in tables for key, power in each.idle_power_w.items()},
        tuple(dict.fromkeys(note for each in tables for note in each.notes)),
        "simulated" if any(each.origin == "simulated" for each in tables) else "measured",
    )


class _Row:
    """A row of a CSV file, which says where it is when something is wrong with it."""

    def __init__(self, path: Path, line: int, cells: dict[str, str]) -> None:
        self._where, self._cells = f"{path}:{line}", cells

    def text(self, column: str) -> str:
        return (self._cells.get(column) or "").strip()

    def number(self, column: str, *, zero: bool = False, blank: float | None = None) -> float:
        """A number above 0, or 0 too if ``zero``; ``blank`` where the cell is blank or not there."""
        value = plain_number(self._cells.get(column) or "")
        if value is not None and math.isnan(value) and blank is not None:
            return blank
        if value is None or not math.isfinite(value):
            raise self.error(column, f"is '{self._cells.get(column) or ''}', not a number")
        if value < 0 or (value == 0 and not zero):
            raise self.error(column, f"is {value:g}; must be {'at least' if zero else 'more than'} 0")
        return value

    def count(self, column: str, blank: float | None = None) -> float:
        value = self.number(column, blank=blank)
        if value < 1:
            raise self.error(column, f"is {value:g}; must be at least 1")
        return value

    def origin(self) -> Literal["measured", "simulated"]:
        return origin_of(self._cells.get("origin"), self._where)

    def error(self, column: str, problem: str) -> BadInputError:
        return BadInputError(f"{self._where}: {column}: {problem}; {_REMEDY}")


def step_tables_in(path: str | os.PathLike[str]) -> list[StepTable]:
    """All tables of a file, one for each model and device that it names; see :func:`read_step_tables`."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}; {_REMEDY}") from error
    check_text(content, str(path))
    reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        reading = next((read for columns, read in _FORMS if set(columns.split()) <= set(header)), None)
        if reading is None:
            raise BadInputError(f"{path}:1: header: this is not a table of steps; {_REMEDY}")
        if len(set(header)) < len(header):
            raise BadInputError(f"{path}:1: header: a column appears twice; {_REMEDY}")
        tables = reading(_rows(path, reader, header))
    except csv.Error as error:
        raise BadInputError(f"{path}:{reader.line_num}: {quoting_problem(error)}") from error
    if not any(each.steps for each in tables):
        raise BadInputError(f"{path}: there are no steps in it; {_REMEDY}")
    return tables


def _rows(path: Path, reader: Iterable[list[str]], header: list[str]) -> Iterator[_Row]:
    for line, cells in enumerate(reader, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise BadInputError(
                f"{path}:{line}: has {len(cells)} cells where the header has {len(header)}; is it truncated?"
            )
        yield _Row(path, line, dict(zip(header, cells, strict=True)))


def _own(rows: Iterable[_Row]) -> list[StepTable]:
    steps: list[MeasuredStep] = []
    idle: dict[tuple[Setting, int], list[float]] = defaultdict(list)
    origins = set()
    for row in rows:
        origins.add(row.origin())
        phase, setting, gpus = row.text("phase"), _setting(row), int(row.count("gpus", blank=1.0))
        if phase == "idle":
            idle[setting, gpus].append(row.number("power_w"))
            continue
        if phase not in ("prefill", "decode"):
            raise row.error("phase", f"is '{phase}'; must be prefill, decode or idle")
        tokens = row.count("tokens", blank=1.0 if phase == "decode" else None)
        if phase == "decode" and tokens != 1:
            raise row.error("tokens", f"is {tokens:g}; a decode step makes 1 per sequence")
        time_s = row.number("time_s") if row.text("time_s") or not row.text("time_ms") else row.number("time_ms") / 1e3
        power_w = row.number("power_w", blank=math.nan)
        if math.isnan(power_w):
            power_w = row.number("energy_j", blank=math.nan) / time_s
        steps.append(
            MeasuredStep(
                "prefill" if phase == "prefill" else "decode",
                row.count("sequences", blank=1.0 if phase == "prefill" else None),
                tokens,
                row.number("context", zero=True, blank=0.0),
                time_s,
                power_w,
                setting,
                gpus,
            )
        )
    idle_w = {key: sum(values) / len(values) for key, values in idle.items()}
    return [StepTable("", "", tuple(steps), idle_w, origin="simulated" if "simulated" in origins else "measured")]


def _setting(row: _Row) -> Setting:
    core, memory, limit = (row.number(name, blank=math.nan) for name in ("core_mhz", "memory_mhz", "power_limit_w"))
    return Setting.of_numbers(core, memory, limit)


def _pdblend(phase: Phase) -> Callable[[Iterable[_Row]], list[StepTable]]:
    size, time = ("input_tokens", "time_ms") if phase == "prefill" else ("batch", "step_ms")

    def read(rows: Iterable[_Row]) -> list[StepTable]:
        steps = []
        for row in rows:
            setting, count = Setting(core_mhz=row.number("freq_mhz")), row.count(size)
            time_s, power_w = row.number(time) / 1e3, row.number("power_w")
            sequences, tokens = (1.0, count) if phase == "prefill" else (count, 1.0)
            context = 0.0 if phase == "prefill" else row.number("context_tokens")
            steps.append(MeasuredStep(phase, sequences, tokens, context, time_s, power_w, setting))
        idle = {(each.setting, 1): _PDBLEND_IDLE_W for each in steps}
        return [StepTable("Qwen2.5-7B", "L40S-like", tuple(steps), idle, (_PDBLEND_NOTE,))]

    return read


def _splitwise(rows: Iterable[_Row]) -> list[StepTable]:
    """Prompt and token times; rows of the hardware ``h100-80gb-pcap`` are modelled there, not measured, and left out."""
    found: dict[tuple[str, str], list[MeasuredStep]] = defaultdict(list)
    for row in rows:
        if row.text("hardware").endswith("-pcap"):
            continue
        steps = found[row.text("model"), row.text("hardware")]
        prompt, batch, made = row.count("prompt_size"), row.count("batch_size"), row.count("token_size")
        gpus = int(row.count("tensor_parallel"))
        prompt_s, token_s = row.number("prompt_time") / 1e3, row.number("token_time") / 1e3
        steps.append(MeasuredStep("prefill", batch, prompt, 0.0, prompt_s, gpus=gpus))
        steps.append(MeasuredStep("decode", batch, 1.0, prompt + made / 2, token_s, gpus=gpus))
    note = "splitwise's table has times only: its powers are empty on H100, and not separated by phase on A100"
    return [StepTable(model, device, tuple(steps), {}, (note,)) for (model, device), steps in found.items()]


def _ml_energy(rows: Iterable[_Row]) -> list[StepTable]:
    """Decode steps of the steady state: their median time, and the mean power, prefills beside them included."""
    found: dict[tuple[str, str], list[MeasuredStep]] = defaultdict(list)
    for row in rows:
        name = " ".join((row.text("model_id"), row.text("task"), row.text("weight_precision")))
        for axis in ("tensor", "expert", "data"):
            if (degree := row.text(f"{axis}_parallel")) not in ("", "1"):
                name += f" {axis} {degree}"
        found[name, row.text("gpu_model")].append(
            MeasuredStep(
                "decode",
                row.count("avg_batch_size"),
                1.0,
                row.number("avg_output_len") / 2,
                row.number("median_itl_ms") / 1e3,
                row.number("avg_power_watts"),
                AUTO,
                int(row.count("num_gpus")),
            )
        )
    return [StepTable(model, device, tuple(steps), {}, (_ML_ENERGY_NOTE,)) for (model, device), steps in found.items()]


_PDBLEND_IDLE_W: Final = 72.5  # "active idle" is 68 to 77 W in its repository
_PDBLEND_NOTE: Final = "pdblend's table names no card; clocks and powers are like those of an L40S"
_ML_ENERGY_NOTE: Final = (
    "ML.ENERGY's table is of steady states: steps are median times between tokens, powers include the prefills beside, and "
    "contexts are taken to be half of the answers"
)
_FORMS: Final[tuple[tuple[str, Callable[[Iterable[_Row]], list[StepTable]]], ...]] = (
    ("freq_mhz input_tokens time_ms power_w", _pdblend("prefill")),
    ("freq_mhz context_tokens batch step_ms power_w", _pdblend("decode")),
    ("model hardware prompt_size batch_size token_size prompt_time token_time tensor_parallel", _splitwise),
    ("model_id task gpu_model num_gpus avg_batch_size avg_output_len avg_power_watts median_itl_ms", _ml_energy),
    ("phase sequences", _own),
)
