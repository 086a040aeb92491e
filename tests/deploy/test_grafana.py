"""The dashboard: in Grafana's own schema, asking for metrics that exist, and answered by a real Prometheus."""

import importlib.util
import itertools
import json
import re
import time
from pathlib import Path

import pytest

from testbed.applied import GPU, PROOF, status
from testbed.prometheus import prometheus_scraping
from wastenot.control.metrics import METRICS, serve_metrics
from wastenot.control.status import Estimate, Proxy

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARD = json.loads((FOLDER / "wastenot.json").read_text())
QUERIES = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
QUERIES += [(each["name"], each["expr"]) for each in DASHBOARD["annotations"]["list"]]


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))


def test_the_file_is_what_its_script_makes():
    module = importlib.util.spec_from_file_location("make_dashboard", FOLDER / "make_dashboard.py")
    script = importlib.util.module_from_spec(module)
    module.loader.exec_module(script)
    assert (FOLDER / "wastenot.json").read_text() == script.text()


def lost(before, after, path=""):
    """Paths of what did not survive a round trip."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [each for key in before for each in lost(before[key], after.get(key), f"{path}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [each for index, (old, new) in pairs for each in lost(old, new, f"{path}/{index}")]
    return [] if before == after else [path]


def through_grafanas_models(dashboard):
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))


def test_grafanas_models_know_every_field():
    assert lost(DASHBOARD, through_grafanas_models(DASHBOARD)) == []


@pytest.mark.parametrize(
    "path",
    [("nonsense",), ("panels", 6, "nonsense"), ("panels", 6, "options", "nonsense"), ("panels", 6, "targets", 0, "nonsense"),
     ("panels", 6, "fieldConfig", "defaults", "custom", "nonsense")],
)  # fmt: skip
def test_grafanas_models_do_not_know_others(path):
    wrong = json.loads(json.dumps(DASHBOARD))
    *where, name = path
    part = wrong
    for step in where:
        part = part[step]
    part[name] = 1
    assert lost(wrong, through_grafanas_models(wrong)) == ["/" + "/".join(map(str, path))]


def test_panels_fill_the_grid_without_overlap():
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x, y in itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_queries_name_metrics_that_exist_and_leave_none_out():
    known = {metric.name for metric in METRICS}
    asked = {name for _, query in QUERIES for name in re.findall(r"wastenot_\w+", query)}
    assert asked <= known
    assert known - asked == {"wastenot_rungs", "wastenot_compared_iterations"}


@pytest.mark.system
def test_a_real_prometheus_answers_every_query(tmp_path):
    """All but those that ask for something rare: a step to another rung, a block at the default clocks."""
    reads = itertools.count(1)

    def present():
        number = next(reads)
        gpu = GPU.model_copy(update={"energy_j": 1000.0 + 60.0 * number, "target_memory_mhz": 9501.0,
                                     "target_power_limit_w": 300.0})  # fmt: skip
        saved = Estimate(value=100.0 - number, low=90.0 - number, high=110.0 - number)  # an estimate may fall
        proof, proxy = PROOF.model_copy(update={"saved_j": saved}), Proxy(error=0.004, jobs=3, unit_s=1.0)
        return status(gpus=(gpu,), proof=proof, iteration=number, proxy=proxy)

    with serve_metrics(0, present) as port, prometheus_scraping(port, tmp_path) as prometheus:
        prometheus.wait_for("changes(wastenot_gpu_energy_joules_total[30s]) >= 3")
        targets = prometheus.get("targets")["activeTargets"]
        assert [target["health"] for target in targets] == ["up"]
        for title, query in QUERIES:
            if title.startswith(("at the default clocks", "a step", "Leases")):
                continue
            filled = query.replace("$instance", f"127.0.0.1:{port}").replace("$__rate_interval", "30s")
            assert prometheus.values(filled), f"{title}: {query}"
        kinds = {name: each[0]["type"] for name, each in prometheus.get("metadata").items() if name.startswith("wastenot")}
        # A counter's metadata stand under its name without _total.
        named = {metric.name.removesuffix("_total" if metric.kind == "counter" else ""): metric for metric in METRICS}
        assert {name: metric.kind for name, metric in named.items()} == kinds
        time.sleep(0.5)
        assert max(value for _, value in prometheus.values("delta(wastenot_saved_energy_joules_total[30s])")) < 0.0
        assert min(value for _, value in prometheus.values("rate(wastenot_gpu_energy_joules_total[30s])")) > 0.0
