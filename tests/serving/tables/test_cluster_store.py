"""Simulated runs in a study: found by their digest, kept once, and older studies are read."""

from dataclasses import replace
from itertools import groupby

import pytest

from wastenot.core.errors import StudyError
from wastenot.serving.tables.cluster_store import ClusterStore, StoredClusterRun
from wastenot.study.store import open_study

RECORD = '{"requests": 12, "energy_j": 1.5, "by_class": [null, 1.0, 0.5], "failed": true, "more": []}'
RUN = StoredClusterRun("a" * 64, "small", "single-pool", "steady", 3, RECORD)


def test_runs_are_found_by_their_digest_and_kept_once(study):
    store = ClusterStore(study)
    assert store.find([RUN.digest]) == {}
    store.keep(RUN)
    store.keep(replace(RUN, digest="b" * 64, record="{}"))
    store.keep(replace(RUN, record="another"))
    assert store.find([RUN.digest, "c" * 64]) == {RUN.digest: RUN.record}
    assert store.find([f"{each:064}" for each in range(1200)] + ["b" * 64]) == {"b" * 64: "{}"}


def test_a_study_that_is_not_there_holds_none_and_is_not_made(tmp_path):
    assert ClusterStore(open_study(str(tmp_path / "none.db"), create=True)).find([RUN.digest]) == {}
    assert not (tmp_path / "none.db").exists()


def test_a_summary_lists_runs_by_scenario_traffic_policy_and_seed(study):
    store = ClusterStore(study)
    order = [("late", "night", 1), ("early", "night", 0), ("late", "night", 0), ("late", "day", 0), ("early", "day", 2)]
    for place, (policy, traffic, seed) in enumerate(order):
        store.keep(replace(RUN, digest=f"{place:064}", policy=policy, traffic=traffic, seed=seed))
    found = study.summary().others["cluster_runs"]
    assert {(each.requests, each.energy_j, each.worst_class, each.failed) for each in found} == {(12, 1.5, 0.5, True)}
    together = [(each.traffic, each.policy) for each in found]
    assert len(dict.fromkeys(together)) == len(list(groupby(together))) == 4
    assert [each.seed for each in found if each.policy == "late" and each.traffic == "night"] == [0, 1]


def test_a_run_that_is_none_is_said_so(study):
    ClusterStore(study).keep(replace(RUN, record='{"energy_j": 1.5}'))
    with pytest.raises(StudyError, match="not a valid run"):
        study.summary()
