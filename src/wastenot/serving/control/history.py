"""Readings of servers from Prometheus' history: each scrape of the last hours as one reading, as it was kept.

Samples are asked for as they are (an instant query of a range, ``{...}[300s]``), not resampled (``query_range``): all series
of a scrape have its timestamp, so that scrapes come back whole, missing ones are missing, and no value is repeated. A range
is read in pieces, each of which fits into a reply of bounded length.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.core.errors import BadInputError, ServerError, first_line
from wastenot.serving.bench.replies import aiohttp_or_error, plain_session, reason
from wastenot.serving.bench.server_metrics import METRIC_NAMES, NAMES, Sample
from wastenot.serving.control.sources import Heard, heard_of, host_of, query_prometheus

MOST_HOURS = 24.0
_PIECE_S = 300.0
_TIMEOUT_S = 30.0
_MOST_SCRAPES = 20_000  # of a server: a day of one each 5 s
_LONGEST_LABEL = 80
_SHOWN = 8  # servers that an error names


@dataclass(frozen=True, slots=True)
class History:
    """The scrapes of one server.

    Attributes:
        instance: its label in Prometheus.
        job: the same.
        scrapes: ascending in time, which is Unix time; the instance in them is 0.
    """

    instance: str
    job: str
    scrapes: tuple[Heard, ...]


def plain(label: str) -> str:
    """A label that another program has made up, without characters that a terminal would act on."""
    return "".join(each if each.isprintable() else "?" for each in label)[:_LONGEST_LABEL]


async def read_histories(url: str, wanted: Sequence[str], hours: float) -> tuple[History, ...]:
    """The last hours of servers' metrics.

    Args:
        url: of Prometheus, such as ``http://localhost:9090``.
        wanted: servers by their addresses or ``instance`` labels; none for the only one there is.
        hours: to look back, at most a day.

    Raises:
        BadInputError: Prometheus does not answer, or has no metrics of such servers; there are several and none was chosen.
    """
    try:
        host_of(url)
    except BadInputError:
        raise BadInputError(f"Prometheus {url}: not an address; write one such as http://localhost:9090") from None
    if not 0.0 < hours <= MOST_HOURS:
        raise BadInputError(f"`hours` {hours:g}: must be above 0, and at most {MOST_HOURS:g}")
    aiohttp = aiohttp_or_error()
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with plain_session(timeout=timeout) as session:
        end_s = time.time()
        try:
            targets = await _targets(session, url, hours, end_s)
            chosen = _chosen(targets, wanted, hours)
            return tuple([await _history(session, url, *each, hours, end_s) for each in chosen])
        except BadInputError:
            raise
        except ServerError as error:
            raise BadInputError(f"Prometheus at {host_of(url)}: {first_line(error)}") from error
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            raise BadInputError(f"Prometheus at {host_of(url)}: {reason(error, _TIMEOUT_S)}; is it there?") from error


async def _targets(session: Any, url: str, hours: float, end_s: float) -> dict[str, list[str]]:
    """The servers that have metrics of a kind that is understood, and the jobs that scrape each."""
    names = "|".join(dict.fromkeys(name.partition("{")[0] for name in NAMES["running"]))
    asked = f'count by (instance, job) (last_over_time({{__name__=~"{names}"}}[{3600 * hours:.0f}s]))'
    jobs: defaultdict[str, list[str]] = defaultdict(list)
    for labels in (_labels(each) for each in await query_prometheus(session, url, asked, end_s)):
        jobs[labels.get("instance", "")].append(labels.get("job", ""))
    return {instance: sorted(jobs[instance]) for instance in sorted(jobs)}


def _chosen(targets: Mapping[str, Sequence[str]], wanted: Sequence[str], hours: float) -> list[tuple[str, str]]:
    if not targets:
        raise BadInputError(
            f"Prometheus has no metrics of an LLM server in the last {hours:g} h, such as {NAMES['running'][0]}; does it "
            "scrape the server's /metrics?"
        )
    shown = ", ".join(plain(each) for each in list(targets)[:_SHOWN])
    if len(targets) > _SHOWN:
        shown += f" and {len(targets) - _SHOWN} more"
    if not wanted and len(targets) > 1:
        raise BadInputError(f"Prometheus has metrics of {len(targets)} servers: {shown}; choose with --instance")
    names = [host_of(each) if "://" in each else each for each in wanted] or list(targets)
    for name in names:
        if name not in targets:
            raise BadInputError(
                f"`instance` {name}: Prometheus has no metrics of it in the last {hours:g} h; it has {shown}"
            )
        if len(targets[name]) > 1:
            jobs = ", ".join(plain(each) for each in targets[name])
            raise BadInputError(
                f"`instance` {plain(name)}: is scraped by several jobs ({jobs}), so all would count more than once; use a "
                "Prometheus that scrapes it once"
            )
    return [(name, targets[name][0]) for name in names]


async def _history(session: Any, url: str, instance: str, job: str, hours: float, end_s: float) -> History:
    labels = f"instance={json.dumps(instance, ensure_ascii=False)},job={json.dumps(job, ensure_ascii=False)}"
    begin_s, at_s = end_s - 3600.0 * hours, end_s
    samples: defaultdict[float, list[Sample]] = defaultdict(list)
    while at_s > begin_s:
        over_s = min(_PIECE_S, math.ceil(at_s - begin_s))
        asked = f'{{__name__=~"{"|".join(METRIC_NAMES)}",{labels}}}[{over_s:.0f}s]'
        piece: defaultdict[float, list[Sample]] = defaultdict(list)
        for each in await query_prometheus(session, url, asked, at_s):
            of = _labels(each)
            for when_s, value in _values(each):
                piece[when_s].append(Sample(of.get("__name__", ""), of, value))
        # a scrape on the border of two pieces is in both
        samples.update({when_s: found for when_s, found in piece.items() if when_s not in samples})
        if len(samples) > _MOST_SCRAPES:
            raise BadInputError(f"{plain(instance)}: has more than {_MOST_SCRAPES:,} scrapes; look back less with --hours")
        at_s -= over_s
    return History(instance, job, tuple(heard_of(0, when_s, samples.pop(when_s)) for when_s in sorted(samples)))


def _labels(series: Any) -> Mapping[str, str]:
    labels = series.get("metric") if isinstance(series, dict) else None
    if not isinstance(labels, dict) or not all(isinstance(each, str) for each in labels.values()):
        raise ServerError("replies with series that have no labels")
    return labels


def _values(series: Mapping[str, Any]) -> list[tuple[float, float]]:
    try:
        found = [(float(when), float(value)) for when, value in series["values"]]
    except (KeyError, TypeError, ValueError):
        raise ServerError("replies with samples that are none") from None
    if not all(math.isfinite(when) for when, _ in found):
        raise ServerError("replies with samples at no time")
    return found
