"""What a run under load tells of a server's steady state."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from wastenot.core.errors import ServerError
from wastenot.core.wording import counted
from wastenot.serving.bench.caveats import notes_on, why_unstable
from wastenot.serving.bench.lifetimes import lifetimes, percentiles
from wastenot.serving.bench.loops import Run
from wastenot.serving.bench.measured_point import MeasuredPoint
from wastenot.serving.bench.occupancy import mean_answered, most_in_flight
from wastenot.serving.bench.scraping import Quantity, Scraped
from wastenot.serving.bench.server import Server
from wastenot.serving.bench.streams import Stream
from wastenot.serving.tables.records import Percentiles

_KEPT_METRICS: tuple[Quantity, ...] = ("running", "waiting", "cache_used")


def point_of(run: Run, server: Server, scraped: Scraped, *, counts: bool, busy_before: float = 0.0) -> MeasuredPoint:
    """What a run tells.

    Args:
        run: under a load.
        server: it was on.
        scraped: of the server's metrics.
        counts: whether the server counts the tokens of prompts.
        busy_before: requests that it ran before the first was sent.

    Raises:
        ServerError: no request had an answer.
    """
    outcomes: Counter[str] = Counter(stream.outcome for stream in run.streams)
    if not any(stream.arrival_s for stream in run.streams):
        why = run.last_failure or "it was stopped before"
        raise ServerError(f"{server.url}: answered none of {counted(len(run.streams), 'request')}: {why}")
    begin_s = run.begin_s if run.begin_s is not None else run.over_s
    end_s = run.end_s if run.end_s is not None else begin_s
    steady_s = end_s - begin_s
    inside = [stream.tokens().within(begin_s, end_s) for stream in run.streams]
    tokens = sum(number for number, _ in inside)
    sent = [stream for stream in run.streams if begin_s <= stream.sent_s <= end_s]
    ttfts = np.asarray([stream.arrival_s[0] - stream.sent_s for stream in sent if stream.arrival_s])
    running, by_server = scraped.mean("running", begin_s, end_s), True
    if running is None and steady_s > 0.0:
        running, by_server = mean_answered(run.streams, begin_s, end_s), False
    late_s = float(np.percentile(run.late_s, 99.0)) if len(run.late_s) else 0.0
    gaps_s = np.concatenate([gaps for _, gaps in inside])
    counted_prompts = [stream.prompt_tokens for stream in run.streams if stream.prompt_tokens is not None]
    failed: dict[str, int] = {name: number for name, number in outcomes.items() if name not in {"done", "stopped"}}
    point = MeasuredPoint(
        server=server, wanted=run.wanted, begin_s=begin_s, end_s=end_s,
        most_in_flight=most_in_flight(run.streams, run.over_s),
        sent=len(run.streams),
        sent_per_s=len(sent) / steady_s if steady_s > 0.0 else 0.0, ended=outcomes["done"], failed=failed, tokens=tokens,
        tokens_per_s=tokens / steady_s if steady_s > 0.0 else 0.0, mean_running=running, running_by_server=by_server,
        prompt_tokens=float(np.mean(counted_prompts)) if counted_prompts else None,
        output_tokens=_output_tokens(run.streams), ttft=percentiles(ttfts), itl=percentiles(gaps_s),
        end_to_end=_end_to_end(run, begin_s, end_s), gaps_s=gaps_s, ttfts_s=ttfts,
        metrics=_metrics(scraped, begin_s, end_s), client_late_s=late_s, why_unstable="", fault=run.fault, notes=(),
    )  # fmt: skip
    others = scraped.rate("output_tokens", begin_s, end_s)
    return replace(
        point,
        notes=notes_on(point, run, others, counts=counts, busy_before=busy_before),
        why_unstable=why_unstable(point, run),
    )


def _end_to_end(run: Run, begin_s: float, end_s: float) -> Percentiles:
    """Lifetimes within the steady state; of requests that were waited for, to their ends."""
    streams = [stream for stream in run.streams if stream.outcome in {"done", "stopped"} and stream.sent_s <= end_s]
    sent = np.asarray([stream.sent_s for stream in streams])
    left = np.asarray([stream.ended_s if stream.ended_s is not None else run.over_s for stream in streams])
    done = np.asarray([stream.outcome == "done" for stream in streams], dtype=bool)
    if not run.drained:  # what ends after the window ends in a batch that is not refilled
        done &= left <= end_s
        left = np.minimum(left, end_s)
    return lifetimes(np.maximum(begin_s - sent, 0.0), left - sent, done)


def _output_tokens(streams: list[Stream]) -> float | None:
    """Mean length of answers; those stopped at the end were at least as long as they had become."""
    kept = [stream for stream in streams if stream.outcome in {"done", "stopped"} and stream.arrival_s]
    if not kept:
        return None
    done = np.asarray([stream.outcome == "done" for stream in kept], dtype=bool)
    lengths = np.asarray([float(stream.answer_tokens) for stream in kept])
    if all(
        stream.ask.exact and stream.answer_tokens == stream.ask.output_tokens for stream in kept if stream.outcome == "done"
    ):
        asked = [stream.ask.output_tokens for stream in kept if stream.ask.output_tokens is not None]
        if len(asked) == len(kept):
            return float(np.mean(asked))
    if not done.any():
        return None
    return lifetimes(np.zeros(len(kept)), lengths, done).mean_s or float(lengths[done].mean())


def _metrics(scraped: Scraped, begin_s: float, end_s: float) -> tuple[tuple[str, float], ...]:
    found = [(scraped.names.get(name), scraped.mean(name, begin_s, end_s)) for name in _KEPT_METRICS]
    return tuple((name, value) for name, value in found if name is not None and value is not None)
