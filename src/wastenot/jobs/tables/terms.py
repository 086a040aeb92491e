"""What may be asked of a job: its terms checked, and as the tables hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.jobs.tables.records import JobTerms
from wastenot.study.sweep import quoted

_LONGEST_NAME = 255
_LARGEST = 2**62


def check_terms(terms: JobTerms) -> None:
    """Refuse terms that make no sense, by a BadInputError that says which, and what to write."""
    if not terms.name or len(terms.name) > _LONGEST_NAME or not terms.name.isprintable():
        raise BadInputError(f"`name` {terms.name!r}: a job's name is 1 to {_LONGEST_NAME} printable characters")
    _check_batch_sizes(terms.batch_sizes, terms.default)
    if terms.target is not None and not math.isfinite(terms.target):
        raise BadInputError(f"`target` {terms.target}: must be a number; leave it out where the program itself decides")
    if terms.max_epochs is not None and not _whole(terms.max_epochs):
        raise BadInputError(f"`max_epochs` {terms.max_epochs}: must be a whole number from 1")
    if not 0.0 <= terms.eta <= 1.0:
        raise BadInputError(f"`eta` {terms.eta}: must be from 0 (time alone) to 1 (energy alone)")
    for what, value in (("within_s", terms.within_s), ("power_budget_w", terms.power_budget_w)):
        if value is not None and not (value > 0.0 and math.isfinite(value)):
            raise BadInputError(f"`{what}` {value}: must be above 0")
    if terms.learning_budget is not None and not terms.learning_budget >= 0.0:
        raise BadInputError(
            f"`learning_budget` {terms.learning_budget}: must be at least 0, in runs of the default batch size; "
            "math.inf for no bound"
        )
    if terms.within_s is not None and terms.power_budget_w is not None:
        raise BadInputError("`within_s`, `power_budget_w`: give one of them: each minimises the other quantity")


def _check_batch_sizes(batch_sizes: Sequence[int], default: int) -> None:
    if not batch_sizes:
        raise BadInputError("`batch_sizes`: is empty; give at least the one that the job uses today")
    wrong = [size for size in batch_sizes if not _whole(size)]
    if wrong:
        raise BadInputError(f"`batch_sizes`: {wrong[0]!r} is not a batch size: a whole number from 1")
    if list(batch_sizes) != sorted(set(batch_sizes)):
        raise BadInputError("`batch_sizes`: must be in ascending order, without repeats")
    if default not in batch_sizes:
        listed = ", ".join(map(str, batch_sizes))
        nearest = min(batch_sizes, key=lambda size: abs(math.log(size / default)) if _whole(default) else size)
        raise BadInputError(f"`default` {default}: is not one of `batch_sizes` {listed}; add it to them, or write {nearest}")


def _whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= _LARGEST


def check_same_job(terms: JobTerms, target: float | None, higher_is_better: bool, study: str) -> None:
    """Refuse terms under which a job would be another one.

    Args:
        terms: asked for.
        target: of the job so far.
        higher_is_better: of the job so far.
        study: how messages name it.

    Raises:
        BadInputError: its runs were to reach something else.
    """
    before, now = _goal(target, higher_is_better), _goal(terms.target, terms.higher_is_better)
    if before != now:
        raise BadInputError(
            f"{study}: `name` {quoted(terms.name)}: its runs so far end at {before}, and this one would end at {now}; "
            f"the epochs of one say nothing about the other, so this is another job: give it another name, or keep {before}"
        )


def _goal(target: float | None, higher_is_better: bool) -> str:
    if target is None:
        return "decided by the program"
    return f"a metric of at {'least' if higher_is_better else 'most'} {target!r}"


_AS_THEY_ARE = ("max_epochs", "eta", "max_power_w", "within_s", "power_budget_w", "learning_budget")
"""Terms that a column of the same name holds."""


def terms_row(terms: JobTerms) -> dict[str, Any]:
    """The terms that may change from run to run, as the tables hold them."""
    return {name: getattr(terms, name) for name in _AS_THEY_ARE} | {
        "batch_sizes": json.dumps(terms.batch_sizes),
        "default_batch_size": terms.default,
        "settings": json.dumps([astuple(one) for one in terms.settings]),
    }


def terms_of(row: Any, name: str, target: float | None, higher_is_better: bool) -> JobTerms:
    """The terms that a row of the tables holds.

    Raises:
        BadInputError, ValueError: what is stored cannot be.
    """
    terms = JobTerms(
        name=name,
        batch_sizes=tuple(json.loads(row.batch_sizes)),
        default=row.default_batch_size,
        target=target,
        higher_is_better=bool(higher_is_better),
        settings=tuple(Setting(*each) for each in json.loads(row.settings)),
        **{each: getattr(row, each) for each in _AS_THEY_ARE},
    )
    check_terms(terms)
    return terms
