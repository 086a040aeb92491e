"""What a source hears of an instance."""

from __future__ import annotations

from typing import NamedTuple

from wastenot.serving.bench.server_reading import ServerReading


class Heard(NamedTuple):
    """What a source heard of an instance.

    Attributes:
        instance: its index.
        at_s: when it was so, by ``time.monotonic``.
        reading: of its server; ``None`` where it could not be read.
        why: it could not.
        nonsense: whether it answered, and what it said cannot be.
    """

    instance: int
    at_s: float
    reading: ServerReading | None
    why: str = ""
    nonsense: bool = False
