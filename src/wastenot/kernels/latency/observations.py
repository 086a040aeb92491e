"""Latencies one by one, outliers told apart, and what they come to; kept in a file from which a measurement resumes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.core.errors import BadInputError
from wastenot.planning.latency import TargetLatency, What

_FAR = 4.0  # robust standard deviations of the logarithm from which on a latency is an outlier
_LEAST = 5  # latencies from which on outliers can be told apart
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_SHORTEST_S = 1e-5  # for logarithms


@dataclass(frozen=True, slots=True)
class Observation:
    """One switch.

    Attributes:
        what: changed.
        start, target: values before and after.
        seconds: until it was in effect; where ``late``, it was not in effect after that time.
        late: whether it was not seen to take effect in the time given to it.
    """

    what: What
    start: float
    target: float
    seconds: float
    late: bool = False


def outliers(seconds: FloatArray) -> BoolArray:
    """Which latencies do not belong with the others: far from their median on a logarithmic scale.

    Args:
        seconds: of one target; shape (switches,).
    """
    if len(seconds) < _LEAST:
        return np.zeros(len(seconds), dtype=bool)
    logs = np.log(np.maximum(seconds, _SHORTEST_S))
    distance = np.abs(logs - np.median(logs))
    spread = max(_MAD * float(np.median(distance)), 0.02)
    return np.asarray(distance > _FAR * spread)


def summarise(
    what: What, start: float | None, target: float, found: Sequence[Observation], resolution_s: float
) -> TargetLatency | None:
    """What several switches to one target come to; ``None`` where none of them was seen to take effect.

    Args:
        what: changed.
        start: value that they start from; ``None`` where they start from several.
        target: value after.
        found: the switches.
        resolution_s: of a single latency.
    """
    seconds = np.array([each.seconds for each in found if not each.late])
    late = [each.seconds for each in found if each.late]
    if not len(seconds):
        return None
    apart = outliers(seconds)
    logs = np.log(np.maximum(seconds[~apart], _SHORTEST_S))
    typical_s, jitter = float(np.exp(logs.mean())), float(logs.std(ddof=1)) if len(logs) > 1 else 0.0
    error_s = math.hypot(typical_s * jitter, resolution_s) / math.sqrt(len(logs)) if len(logs) > 1 else typical_s
    return TargetLatency(
        what=what,
        start=start,
        target=target,
        seconds=typical_s,
        error_s=error_s,
        jitter=jitter,
        switches=len(found),
        outliers=int(apart.sum()) + len(late),
        longest_s=max([*seconds.tolist(), *late]),
    )


class Notebook:
    """Observations that survive an interruption.

    Args:
        path: of the file; ``None`` to keep them in memory alone.
        about: what they are of; a file about something else is refused.
    """

    def __init__(self, path: Path | None, about: dict[str, object]) -> None:
        self._path, self._about = path, about
        self.observations: list[Observation] = []
        self.spent_s = 0.0
        if path is not None and path.exists():
            self._read(path)

    @property
    def resumed(self) -> bool:
        """Whether there were observations before."""
        return bool(self.observations)

    def add(self, found: Iterable[Observation], spent_s: float) -> None:
        """Keep observations; when this returns, they are on disk.

        Args:
            found: the observations.
            spent_s: device time that they took.
        """
        new = list(found)
        self.observations += new
        self.spent_s += spent_s
        if self._path is None:
            return
        lines = [] if self._path.exists() else [json.dumps(self._about)]
        lines += [json.dumps(asdict(each)) for each in new]
        lines.append(json.dumps({"spent_s": spent_s}))
        try:
            with self._path.open("a+b") as file:
                _end_at_a_line(file)
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BadInputError(f"{self._path}: cannot be written: {error.strerror or error}") from error

    def discard(self) -> None:
        """Remove the file: what it was for is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        remedy = "remove it to start over"
        try:
            text = path.read_text(encoding="utf-8")
            lines = text[: text.rfind("\n") + 1].splitlines()  # where it was killed, the last may be cut short
            if json.loads(lines[0]) != json.loads(json.dumps(self._about)):
                raise BadInputError(f"{path}: holds an interrupted measurement of another device or other values; {remedy}")
            for line in lines[1:]:
                values = json.loads(line)
                if "spent_s" in values:
                    self.spent_s += float(values["spent_s"])
                else:
                    self.observations.append(Observation(**values))
        except OSError as error:
            raise BadInputError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise BadInputError(
                f"{path}: is not an interrupted measurement of switching latency ({error}); {remedy}"
            ) from None


def _end_at_a_line(file: BinaryIO) -> None:
    """Take off the part of a line that a killed process left at the end."""
    file.seek(0)
    content = file.read()
    file.truncate(content.rfind(b"\n") + 1)
