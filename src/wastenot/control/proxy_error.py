"""How far progress by proxy may be off: learned of jobs that reported their iterations while their traffic was followed.

The file ``proxy.json`` in the folder of this user's state keeps of each job, by model of GPU and origin of its numbers, by
how much traffic an iteration differed most between the settings that were tried. Before anything was learned, an error is
assumed.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Final

from wastenot.control.estimate import student_t
from wastenot.control.status import Proxy
from wastenot.core.errors import BadInputError
from wastenot.core.files import user_state_folder, write_text
from wastenot.devices.protocol import Identity

SCHEMA: Final = "wastenot.proxy/1"
_ASSUMED, _ASSUMED_JOBS = 0.003, 4  # error of a job before any was learned, and how many jobs that is worth: a guess
_KEPT = 50  # jobs of a card


def learned(card: Identity) -> Proxy:
    """The error that is not exceeded in 95 % of jobs, by those of this model of GPU so far."""
    seen = _read().get(_key(card), [])
    jobs = _ASSUMED_JOBS + len(seen)
    mean_square = (_ASSUMED_JOBS * _ASSUMED**2 + math.fsum(each**2 for each in seen)) / jobs
    return Proxy(error=student_t(jobs - 1) * math.sqrt(mean_square), jobs=len(seen))


def learn(card: Identity, error: float) -> None:
    """Keep by how much the proxy was off in a job, at most; where the file cannot be written, it is lost."""
    kept = _read()
    kept[_key(card)] = [*kept.get(_key(card), []), error][-_KEPT:]
    with suppress(OSError, BadInputError):
        _path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(_path(), json.dumps({"schema": SCHEMA, "cards": kept}) + "\n")


def _path() -> Path:
    return user_state_folder() / "proxy.json"


def _key(card: Identity) -> str:
    return f"{card.model}, {card.origin}"


def _read() -> dict[str, list[float]]:
    """What is kept; nothing of a file that is not there, or makes no sense."""
    try:
        content = json.loads(_path().read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            return {}
        return {str(card): [abs(float(each)) for each in errors] for card, errors in content["cards"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
