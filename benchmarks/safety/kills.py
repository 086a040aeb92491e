"""Processes that change clocks, killed at random moments, by the kinds of ``bench_kills``.

``data/kills.csv`` keeps those of earlier runs.
"""

from __future__ import annotations

from benchmarks.bench_kills import ALL, judge_of
from benchmarks.safety.trial import Trial

KILLS = dict.fromkeys(ALL, 50) | {"root": 300, "client": 300, "hang": 60, "daemon": 100, "both": 300}
_SEED = 31  # none of data/kills.csv


def main() -> Trial:
    """Kill as often as :data:`KILLS` says."""
    found = {kind: judge_of(kind).main(kind, kills, _SEED) for kind, kills in KILLS.items()}
    return Trial(
        sum(int(one["kills"]) for one in found.values()),
        [f"{kind}: {one['left']} of {one['kills']} left something changed" for kind, one in found.items() if one["left"]],
        {
            "changed_when_killed": sum(one["clocks_changed"] for one in found.values()),
            "longest_until_restored_s": round(max(one["longest_s"] for one in found.values()), 3),
        },
    )
