"""How many requests were in flight, and how many had begun to be answered, over a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wastenot.serving.bench.streams import Stream


def mean_answered(streams: Sequence[Stream], begin_s: float, end_s: float) -> float:
    """Requests that the server was at work on, on average over a time, as far as that is seen from outside.

    A request waits in the server's queue before its prompt is read, which nobody sees; reading it is taken to last as long
    as the shortest time to a first token of all.
    """
    begun = [stream for stream in streams if stream.arrival_s]
    if not begun:
        return 0.0
    reading_s = min(stream.arrival_s[0] - stream.sent_s for stream in begun)
    return _overlap([s.arrival_s[0] - reading_s for s in begun], [s.ended_s or end_s for s in begun], begin_s, end_s)


def most_in_flight(streams: Sequence[Stream], over_s: float) -> int:
    """Most requests in flight at once."""
    begins = np.asarray([stream.sent_s for stream in streams])
    ends = np.asarray([stream.ended_s if stream.ended_s is not None else over_s for stream in streams])
    order = np.argsort(np.concatenate([ends, begins]), kind="stable")
    return int(np.cumsum(np.repeat([-1, 1], len(streams))[order]).max())


def _overlap(begins: Sequence[float], ends: Sequence[float], begin_s: float, end_s: float) -> float:
    inside = np.minimum(np.asarray(ends), end_s) - np.maximum(np.asarray(begins), begin_s)
    return float(np.clip(inside, 0.0, None).sum() / (end_s - begin_s))
