"""What the daemon counts of itself, as Prometheus reads it; written out here, so that root installs no package for it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

METRICS: Mapping[str, tuple[Kind, str]] = {
    "requests_total": ("counter", "Requests, by what was asked and the result: ok, or the kind of refusal"),
    "connections": ("gauge", "Open connections"),
    "connections_refused_total": ("counter", "Connections refused because the user, or all together, had too many"),
    "set_seconds": ("histogram", "Time from receiving a request to set clocks until it was granted"),
    "gpu_queue_length": ("gauge", "Requests and other work that a GPU's thread has not finished"),
    "gpu_hung": ("gauge", "1 while a call of the GPU's driver does not return, else 0"),
    "gpu_undo_failures_total": ("counter", "Failed attempts to restore a GPU"),
    "budget_watts": ("gauge", "Watts that the GPUs of a budget share"),
    "budget_short_watts": ("gauge", "Watts that they may draw beyond it, whatever is set"),
    "gpu_power_watts": ("gauge", "Power of a GPU that shares a budget"),
    "gpu_limit_watts": ("gauge", "Power limit of a GPU that shares a budget"),
    "gpu_gives_watts": ("gauge", "Watts of its fair share of the budget that others have; negative where it has theirs"),
    "gpu_disobeys": ("gauge", "1 while a GPU counts at the most that it may draw, since it drew more than its limit"),
    "policy_reload_seconds": ("gauge", "Time that the last reload took until the policy held for all GPUs that answer"),
    "policy_reloads_total": ("counter", "Reloads of the policy, by result: ok, or failed where a file had a mistake"),
    "log_lines_dropped_total": ("counter", "Lines of the log that were lost"),
    "audit_records_dropped_total": ("counter", "Records of the audit log that were lost"),
}
_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Numbers by their names; of one thread alone.

    Args:
        known: kind and meaning of each metric.
        prefix: of their names.
    """

    def __init__(self, known: Mapping[str, tuple[Kind, str]] = METRICS, prefix: str = "wastenotd") -> None:
        self._known, self._prefix = known, prefix
        self._values: defaultdict[str, Counter[Labels]] = defaultdict(Counter)
        self._reads: dict[str, Callable[[], float | Mapping[Labels, float]]] = {}
        self._took, self._took_s = [0] * (len(_BUCKETS_S) + 1), 0.0

    def count(self, name: str, **labels: str) -> None:
        """Count one more."""
        self._values[name][tuple(labels.items())] += 1

    def read(self, name: str, value: Callable[[], float | Mapping[Labels, float]]) -> None:
        """Take a metric from elsewhere, whenever it is asked for: one value, or one for each combination of labels."""
        self._reads[name] = value

    def took(self, seconds: float) -> None:
        """Note how long a request to set clocks took."""
        self._took[bisect_left(_BUCKETS_S, seconds)] += 1
        self._took_s += seconds

    def text(self) -> str:
        """All of them, in Prometheus' text format."""
        lines = list[str]()
        for name, (kind, meaning) in self._known.items():
            lines += [f"# HELP {self._prefix}_{name} {meaning}", f"# TYPE {self._prefix}_{name} {kind}"]
            lines += [f"{self._prefix}_{sample}" for sample in self._samples(name, kind)]
        return "\n".join(lines) + "\n"

    def _samples(self, name: str, kind: Kind) -> Iterator[str]:
        if kind == "histogram":
            for bound, count in zip([*map(str, _BUCKETS_S), "+Inf"], accumulate(self._took), strict=True):
                yield f'{name}_bucket{{le="{bound}"}} {count}'
            yield f"{name}_sum {self._took_s:.6f}"
            yield f"{name}_count {sum(self._took)}"
            return
        found = self._reads[name]() if name in self._reads else self._values[name]
        for labels, value in (found if isinstance(found, Mapping) else {(): found}).items():
            named = ",".join(f'{label}="{text}"' for label, text in labels)
            yield f"{name}{{{named}}} {value:.15g}" if named else f"{name} {value:.15g}"
