"""Writes ``wastenot.json``, the Grafana dashboard of plans at work.

    python deploy/grafana/make_dashboard.py

A test holds the file against this script, its JSON against the schema of Grafana's own models, and each query against a
Prometheus that scrapes what ``wastenot apply --metrics-port`` serves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_OF_JOB = 'instance="$instance"'
_JOB = f"{{{_OF_JOB}}}"
_WIDTH = 24  # of a row, in Grafana's grid
_EDGE = {"custom.lineWidth": 0, "custom.hideFrom": {"legend": True, "tooltip": False, "viz": False}}
_FAINT, _LIMIT = "#8a94a3", "#d6483b"

Json = dict[str, Any]


def dashboard() -> Json:
    """The dashboard."""
    return {
        "uid": "wastenot-apply",
        "title": "wastenot: plans at work",
        "description": "Energy that wastenot saves in running jobs, with its 95 % interval, and the slowdown it keeps to.",
        "tags": ["wastenot", "energy", "gpu"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 38,
        "version": 1,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "fiscalYearStartMonth": 0,
        "templating": {"list": [_datasource(), _instance()]},
        "annotations": {"list": [_default_clocks(), _steps()]},
        "panels": _laid_out(_rows()),
    }


def _rows() -> Sequence[tuple[int, Sequence[Json]]]:
    """Panels by rows, each with its height."""
    estimated = "estimate, 95 % shaded"
    return (
        (4, (
            _stat("Saved by this job", f"wastenot_saved_energy_joules_total{_JOB}", "joule",
                  "An estimate from iterations at the default clocks in between; it may fall."),
            _stat("Energy per iteration", f"wastenot_energy_change_ratio{_JOB}", "percentunit",
                  "Against the default clocks, as measured while the job runs; negative is saved.", decimals=2),
            _stat("Time per iteration", f"wastenot_slowdown_ratio{_JOB}", "percentunit",
                  "Against the default clocks, as measured while the job runs; positive is slower.", decimals=2),
            _stat("Rung", f"wastenot_rung{_JOB}", "none",
                  "0 is the plan itself; each step makes the job faster, the last is the default clocks."),
            _stat("Saved by all jobs", "sum by (origin) (wastenot_saved_energy_joules_total)", "joule",
                  "By the origin of the numbers: what a simulated GPU saves is never added to what was measured.",
                  legend="{{origin}}"),
            _table("The plan", f"wastenot_plan_info{_JOB}"),
        )),
        (9, (
            _series("Energy saved", "joule", f"Since the plan was applied: {estimated}.",
                    _interval("saved_energy", "joules", "_total")),
            _series("Time per iteration relative to the default clocks", "percentunit",
                    f"Measured while the job runs: {estimated}; and the slowdown limit.",
                    [*_interval("slowdown", "ratio"), _target(f"wastenot_max_slowdown_ratio{_JOB}", "kept to"),
                     _target(f"wastenot_predicted_slowdown_ratio{_JOB}", "predicted"),
                     _target(f"wastenot_proxy_error_ratio{_JOB}", "by proxy: off by at most")]),
            _series("Energy per iteration relative to the default clocks", "percentunit",
                    f"Measured while the job runs: {estimated}; negative is saved.",
                    [*_interval("energy_change", "ratio"),
                     _target(f"wastenot_predicted_energy_change_ratio{_JOB}", "predicted")]),
        )),
        (9, (
            _series("Power", "watt", "Latest reading of each GPU.",
                    [_target(f"wastenot_gpu_power_watts{_JOB}", "{{device}}"),
                     _target(f"wastenot_gpu_power_limit_target_watts{_JOB}", "{{device}}, limit requested")]),
            _series("Core clock", "hertz", "Requested and in effect; nothing is requested while the driver decides.",
                    [_target(_clock("gpu_clock", "core"), "{{device}}, in effect"),
                     _target(_clock("gpu_clock_target", "core"), "{{device}}, requested")]),
            _series("Memory clock", "hertz", "Requested and in effect; nothing is requested while the driver decides.",
                    [_target(_clock("gpu_clock", "memory"), "{{device}}, in effect"),
                     _target(_clock("gpu_clock_target", "memory"), "{{device}}, requested")]),
        )),
        (7, (
            _series("Mean power", "watt", "From each GPU's energy counter.",
                    [_target(f"rate(wastenot_gpu_energy_joules_total{_JOB}[$__rate_interval])", "{{device}}")]),
            _series("Iterations per second", "none", "Begun by the job.",
                    [_target(f"rate(wastenot_iterations_total{_JOB}[$__rate_interval])", "iterations per second")]),
            _series("Temperature", "celsius", "Latest reading of each GPU.",
                    [_target(f"wastenot_gpu_temperature_celsius{_JOB}", "{{device}}")]),
            _series("Leases and journals", "none",
                    "GPUs by state. stale: a process died before it reset the clocks; the next wastenot command does.",
                    [_target(f"sum by (state) (wastenot_gpu_lease_state{_JOB})", "{{state}}")]),
        )),
    )  # fmt: skip


def _clock(name: str, clock: str) -> str:
    return f'wastenot_{name}_hertz{{{_OF_JOB},clock="{clock}"}}'


def _datasource() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _instance() -> Json:
    """One job at a time: intervals of several jobs do not add up."""
    query = "label_values(wastenot_plan_info, instance)"
    return {
        "name": "instance", "label": "Job", "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2, "sort": 1,
        "hide": 0, "multi": False, "includeAll": False,
    }  # fmt: skip


def _default_clocks() -> Json:
    return _annotation("at the default clocks, for comparison", f"wastenot_at_default{_JOB} == 1", _FAINT)


def _steps() -> Json:
    return _annotation("a step to another rung", f"changes(wastenot_rung{_JOB}[1m]) > 0", _LIMIT)


def _annotation(name: str, query: str, color: str) -> Json:
    return {"name": name, "datasource": _SOURCE, "enable": True, "hide": False, "iconColor": color, "expr": query}


def _target(query: str, legend: str, **more: Any) -> Json:
    return {"datasource": _SOURCE, "expr": query, "legendFormat": legend, **more}


def _interval(stem: str, unit: str, suffix: str = "") -> list[Json]:
    """An estimate with the ends of its interval."""
    return [
        _target(f"wastenot_{stem}_{unit}{suffix}{_JOB}", "estimate"),
        _target(f"wastenot_{stem}_low_{unit}{_JOB}", "low"),
        _target(f"wastenot_{stem}_high_{unit}{_JOB}", "high"),
    ]


def _lettered(targets: Sequence[Json]) -> list[Json]:
    return [{"refId": chr(ord("A") + index), **target} for index, target in enumerate(targets)]


def _panel(kind: str, title: str, description: str, targets: Sequence[Json]) -> Json:
    return {
        "type": kind, "title": title, "description": description, "datasource": _SOURCE, "targets": _lettered(targets),
    }  # fmt: skip


def _stat(title: str, query: str, unit: str, description: str, *, legend: str = "", decimals: int | None = None) -> Json:
    defaults: Json = {"unit": unit, "color": {"mode": "fixed", "fixedColor": "text"}, "noValue": "not known yet"}
    if decimals is not None:
        defaults["decimals"] = decimals
    return _panel("stat", title, description, [_target(query, legend, instant=True)]) | {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "graphMode": "none", "colorMode": "value", "justifyMode": "auto", "textMode": "auto", "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "values": False, "fields": ""},
        },
    }  # fmt: skip


def _table(title: str, query: str) -> Json:
    hidden = dict.fromkeys(("Time", "Value", "__name__", "instance", "job", "digest"), True)
    return _panel("table", title, "What runs, and where its numbers come from.",
                  [_target(query, "", instant=True, format="table")]) | {
        "fieldConfig": {"defaults": {}, "overrides": []},
        "options": {"frameIndex": 0, "showHeader": True},
        "transformations": [{"id": "organize", "options": {"excludeByName": hidden}}],
    }  # fmt: skip


def _series(title: str, unit: str, description: str, targets: Sequence[Json]) -> Json:
    custom = {"drawStyle": "line", "lineWidth": 2, "fillOpacity": 0, "showPoints": "never", "spanNulls": False}
    return _panel("timeseries", title, description, targets) | {
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": custom},
            "overrides": [
                _override("low", _EDGE),
                _override("high", _EDGE | {"custom.fillBelowTo": "low", "custom.fillOpacity": 20}),
                _override("kept to", {"color": {"mode": "fixed", "fixedColor": _LIMIT}}),
                _override("predicted", {"custom.lineStyle": {"fill": "dash", "dash": [6, 6]}}),
            ],
        },
        "options": {
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "multi", "sort": "none"},
        },
    }  # fmt: skip


def _override(name: str, properties: Json) -> Json:
    """How one series looks, by its name in the legend."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


def _laid_out(rows: Sequence[tuple[int, Sequence[Json]]]) -> list[Json]:
    """The panels with their places: those of a row share its width."""
    panels: list[Json] = []
    top = 0
    for height, row in rows:
        width = _WIDTH // len(row)
        for index, panel in enumerate(row):
            place = {"x": index * width, "y": top, "w": width, "h": height}
            panels.append({"id": len(panels) + 1, **panel, "gridPos": place})
        top += height
    return panels


def text() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (HERE / "wastenot.json").write_text(text(), encoding="utf-8")
