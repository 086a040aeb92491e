"""What speaks against a measured point: why its steady state cannot be relied on, and what a reader should know."""

from __future__ import annotations

from wastenot.core.wording import counted
from wastenot.serving.bench.loops import Run
from wastenot.serving.bench.measured_point import MeasuredPoint

LEAST_STEADY_S = 20.0
"""A shorter steady state is unstable, as ML.ENERGY has it."""
LEAST_FILL = 0.85
"""Of the requests that were to run; fewer are unstable, as ML.ENERGY has it."""

_SHORT_ANSWERS = 0.98
_OTHERS_SHARE = 1.05
_LATE_SHARE = 0.05
_SIGMAS = 4.0
_LATE_S = 3e-3  # an idle machine's timer is up to 1 ms late


def notes_on(
    point: MeasuredPoint, run: Run, made_per_s: float | None, *, counts: bool, busy_before: float = 0.0
) -> tuple[str, ...]:
    """What a reader should know, one line each.

    Args:
        point: measured.
        run: it comes from.
        made_per_s: tokens that the server made in the steady state, for whomever; ``None`` where it does not say.
        counts: whether it counts the tokens of prompts.
        busy_before: requests that it ran before the first was sent.
    """
    done = [stream for stream in run.streams if stream.outcome == "done"]
    notes = []
    if busy_before:
        notes.append(f"the server was busy before the first request: {counted(round(busy_before), 'request')} of others ran")
    if not counts or any(not stream.counts_tokens for stream in done):
        notes.append("the server's streams carry no usage: a chunk is counted as a token, and a word of a prompt as one")
    asked = [stream for stream in done if stream.ask.exact and stream.ask.output_tokens is not None]
    wished = sum(stream.ask.output_tokens or 0 for stream in asked)
    came = sum(stream.answer_tokens for stream in asked)
    if came < _SHORT_ANSWERS * wished:
        mean, goal = came / len(asked), wished / len(asked)
        notes.append(f"answers ended early: {mean:.0f} tokens on average of {goal:.0f} asked for")
    for outcome, number in sorted(point.failed.items()):
        why = next(stream.reason for stream in run.streams if stream.outcome == outcome)
        words = {
            "limited": "were turned away by the server's rate limit", "refused": "were refused",
            "cut off": "broke off", "unreachable": "did not reach the server",
        }[outcome]  # fmt: skip
        notes.append(f"{number:,} of {counted(point.sent, 'request')} {words} ({why})")
    if made_per_s is not None and point.tokens_per_s > 0.0 and made_per_s > _OTHERS_SHARE * point.tokens_per_s:
        notes.append(
            f"others use the server: it made {made_per_s:,.0f} tokens a second, and {point.tokens_per_s:,.0f} came here; "
            "energy for each of ours is too high"
        )
    if point.itl.p50_s is not None and point.client_late_s > max(_LATE_SHARE * point.itl.p50_s, _LATE_S):
        notes.append(
            f"this client was up to {1e3 * point.client_late_s:.1f} ms late (99th percentile): its machine is busy, and "
            "latencies are too long by as much"
        )
    if point.itl.p50_s is None and point.tokens > 0:
        notes.append("answers came in one piece each: there is no time between tokens to tell")
    return tuple(notes)


def why_unstable(point: MeasuredPoint, run: Run) -> str:
    """Why a steady state cannot be relied on; empty where it can."""
    if run.begin_s is None:
        reached = f"only {run.started:,} of {run.wanted:,} requests had a first token" if run.wanted else "too few ended"
        return f"no steady state: {reached}" + (f"; {run.fault}" if run.fault else "")
    if run.fault:
        return run.fault
    if point.steady_s < LEAST_STEADY_S:
        lasted = f"the steady state lasted {point.steady_s:.1f} s of at least {LEAST_STEADY_S:g}"
        return f"{lasted}: measure for longer, or give more requests"
    if run.wanted and point.mean_running is not None and point.mean_running < LEAST_FILL * run.wanted:
        share = point.mean_running / run.wanted
        who = "ran" if point.running_by_server else "were being answered"
        limit = "; its own limit may be lower (vLLM: --max-num-seqs)" if point.running_by_server else ""
        return f"{point.mean_running:.1f} requests {who} on average, {100 * share:.0f} % of the {run.wanted:,} wanted{limit}"
    if not run.wanted and _falls_behind(run, point.begin_s, point.end_s):
        return "requests come faster than they are answered: ever more of them wait"
    return ""


def _falls_behind(run: Run, begin_s: float, end_s: float) -> bool:
    """Whether more requests came in the steady state than ended, by a tenth and beyond chance.

    Both come at random, so that their difference varies by the root of their sum at most.
    """
    came = sum(begin_s < stream.sent_s <= end_s for stream in run.streams)
    ended = sum(stream.ended_s is not None and begin_s < stream.ended_s <= end_s for stream in run.streams)
    return came > 1.1 * ended and came - ended > _SIGMAS * (came + ended) ** 0.5
