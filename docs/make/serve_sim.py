"""Computed from data/serving, which a benchmark writes (cluster-forecast)."""

from __future__ import annotations

from benchmarks.kept import DATA
from docs.make.page import Page, percent, read_json, table


def forecasts() -> str:
    """Errors and upper quantiles on weeks that shaped nothing."""
    rows = []
    for row in read_json(DATA / "serving" / "cluster-forecast.json")["rows"]:
        errors = [percent(row[name][1]) for name in ("template", "lately", "ours")]
        below = [
            f"{100 * mean:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
            for low, mean, high in (row["below"], row["span_below"])
        ]
        margins = [percent(row[name][1], 0) for name in ("margin", "template_margin")]
        rows.append([f"{row['name']} ({row['weeks']})", *errors, *below, *margins])
    heads = (
        "weeks (synthetic) | error: template | as the last 15 minutes | ours | slots below our upper quantile | "
        "half hours below it | our margin | the template's for as many"
    )
    return table(heads, rows)


PAGES = (Page("serve-sim", {"forecasts": forecasts}),)
