"""Clocks of a real vLLM controlled on the stand-in, from data/serving/control-live.json."""

from __future__ import annotations

from benchmarks.kept import DATA
from docs.make.page import Page, filled, percent, read_json, signed, table


def live() -> str:
    """How soon each fault gave the clocks back, and what became of decisions, deadlines and energy."""
    found = read_json(DATA / "serving" / "control-live.json")
    after = {name: f"{seconds:.1f} s" if seconds else "were in effect already" for name, seconds in found["faults"].items()}
    lies = [seconds for name, seconds in found["faults"].items() if name not in _OTHERS]
    rows = [[meaning, after[name], limit] for name, (meaning, limit) in _OTHERS.items()]
    rows.insert(2, [f"{len(lies)} other lies of `/metrics`, longest", f"{max(lies):.1f} s", "3 s"])
    lives, parts = found["lives"], found["served"]
    calls, decisions = (sum(life[name] for life in lives) for name in ("calls", "decisions"))
    alike, simulated = (sum(life[name] for life in lives) for name in ("alike", "simulated_alike"))
    joules, requests, true_j, seen = found["energy"]
    text = (
        f"In {found['seconds'] / 60.0:.0f} minutes {sum(found['ends'].values()):,} requests came, {parts[0]['least_per_s']:.1f} to "
        f"{max(each['most_per_s'] for each in parts):.1f} per second. The controller's log, decided again offline: {alike:,} of "
        f"{calls:,} calls end in the same state, and {simulated:,} of {decisions:,} decisions are those of the simulator's policy, "
        f"bit for bit. Its metrics counted {joules / requests:.1f} J per request; the truth was {true_j / seen:.1f} J."
    )
    timely = [
        [
            name, f"{each['requests']:,}", f"{each['mean_mhz']:,.0f} MHz", signed(each["rank_of_clock_by_rate"], 2),
            percent(each["first_in_time"], 2), percent(each["tokens_in_time"], 2), percent(each["late_by_clock"], 2),
        ]
        for name, each in zip(("before the faults", "after them"), parts, strict=True)
    ]  # fmt: skip
    heads = "without faults | requests | mean clock | clock by rate | first tokens in time | other tokens in time | late by clock"
    first = table("what was done | default clocks after | at most", rows)
    return first + "\n" + filled(text) + "\n" + table(heads, timely)


_OTHERS = {
    "controller killed": ("the controller killed (SIGKILL)", "2 s"),
    "frozen": ("`/metrics` frozen while requests run", "10 s"),
    "server hangs": ("vLLM stopped for a minute (SIGSTOP)", "10 s"),
    "server killed": ("vLLM killed, and started again", "10 s"),
}

PAGES = (Page("serve-control", {"live": live}),)
