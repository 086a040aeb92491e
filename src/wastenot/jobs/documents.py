"""What is known of a job, as the JSON document that ``--json`` prints and the overview writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wastenot.core.values import as_values
from wastenot.jobs.model.objective import objective_of

if TYPE_CHECKING:
    from wastenot.jobs.model.frontier import Pair
    from wastenot.jobs.plan.overview import JobOverview


def listed(overview: JobOverview) -> dict[str, Any]:
    """What a list of jobs says of one."""
    decision = overview.next
    return {
        "name": overview.terms.name,
        "device": overview.device,
        "origin": overview.origin,
        "devices": list(overview.devices),
        "runs": len(overview.history),
        "reached": overview.reached,
        "total_cost": overview.total_cost,
        "regret": overview.regret,
        "cost_change": None if overview.against_default is None else overview.against_default.ratio - 1.0,
        "next": None if decision is None else {"batch_size": decision.batch_size, "why": decision.why},
    }


def job_document(overview: JobOverview) -> dict[str, Any]:
    """What is known of a job (``wastenot.job/1``)."""
    terms, against = overview.terms, overview.against_default
    return (
        {"schema": "wastenot.job/1"}
        | listed(overview)
        | {
            "terms": as_values(terms),
            "cost_unit": "s" if objective_of(terms).saves == "time" else "J",
            "against_default": None if against is None else as_values(against),
            "history": [
                _of_run(as_values(each.run)) | {"cost": each.cost, "regret": each.regret, "why": each.why}
                for each in overview.history
            ],
            "elsewhere": overview.elsewhere,
            "outlook": as_values(overview.outlook),
            "pairs": [_pair(overview, each) for each in overview.pairs],
            "cheapest": None if overview.cheapest is None else _pair(overview, overview.cheapest),
            "default": None if overview.default is None else _pair(overview, overview.default),
            "next_pair": None if overview.next_pair is None else _pair(overview, overview.next_pair),
            "changed_at": list(overview.changed_at),
            "no_memory": overview.no_memory,
            "learning": None if overview.learning is None else as_values(overview.learning),
            "notes": list(overview.notes),
        }
    )


def _of_run(run: dict[str, Any]) -> dict[str, Any]:
    """A run of an overview, which is of one device: first what was run, then what came of it."""
    del run["device"]
    return {name: run.pop(name) for name in ("number", "batch_size", "setting")} | run


def _pair(overview: JobOverview, pair: Pair) -> dict[str, Any]:
    return measured(pair) | {
        "cost": pair.cost(overview.terms),
        "epochs": pair.epochs.mean,
        "epochs_error": pair.epochs.error,
        "reached": pair.epochs.reached,
        "forecast": pair.forecast,
        "on_frontier": pair in overview.pareto,
    }


def measured(pair: Pair) -> dict[str, Any]:
    """A pair, its time and its energy."""
    names = ("batch_size", "setting", "time_s", "energy_j", "power_w")
    return {name: as_values(getattr(pair, name)) for name in names}
