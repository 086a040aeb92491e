"""Processes that change clocks, killed at random moments, by the kinds of ``testbed/stand_in/kill_runs.py``.

``data/kills.csv`` keeps those of earlier runs, ``wastenot apply`` and ``wastenot serve control`` among them.
"""

from __future__ import annotations

from benchmarks.safety.trial import Trial
from testbed.stand_in import kill_runs

KILLS = {"root": 300, "client": 300, "hang": 60, "daemon": 100, "both": 300}
_SEED = 31  # none of data/kills.csv


def main() -> Trial:
    """Kill as often as :data:`KILLS` says."""
    found = {kind: kill_runs.main(kind, kills, _SEED) for kind, kills in KILLS.items()}
    return Trial(
        sum(int(one["kills"]) for one in found.values()),
        [f"{kind}: {one['left']} of {one['kills']} left something changed" for kind, one in found.items() if one["left"]],
        {
            "changed_when_killed": sum(one["clocks_changed"] for one in found.values()),
            "longest_until_restored_s": round(max(one["longest_s"] for one in found.values()), 3),
        },
    )
