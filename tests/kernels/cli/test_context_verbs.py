"""Energies in context and pairs, as a user meets them."""

import json

import pytest

from testbed.golden import assert_as_agreed

SWEEP = ["kernel", "sweep", "gpt3-small", "--device", "sim:mi300x", "--study", "s.db", "--core", "1300", "--warm-up", "0.2s",
         "--window", "0.2s", "--seed", "3"]  # fmt: skip

# kernel, count, core, memory, time, energy, pass, block; in context the light one costs more after the heavy one
HEAD = "kernel,count,core_mhz,memory_mhz,time_s,energy_j,pass,block,time_se_s,energy_se_j\n"
ROWS = [("gemm", 24, (0.01, 6.0), (0.011, 4.4)), ("softmax", 24, (0.004, 1.2), (0.0045, 0.9)),
        ("dropout", 24, (0.003, 0.9), (0.0031, 0.62)), ("loss", 1, (0.02, 5.0), (0.021, 4.2))]  # fmt: skip


def sweep_csv(extra_j):
    lines = []
    for name, count, auto, low in ROWS:
        block = "layer" if count > 1 else ""
        for clocks, (time_s, energy_j) in ((",", auto), ("1500,9501", low)):
            lines.append(f"{name},{count},{clocks},{time_s},{energy_j + extra_j.get(name, 0.0)},forward,{block},1e-6,1e-4")
    return HEAD + "\n".join(lines) + "\n"


@pytest.fixture
def both(wastenot):
    """A study of both states, by import: every number is known."""
    for state, extra in (("ssp", {}), ("context", {"softmax": 0.06, "dropout": 0.001, "gemm": 0.03})):
        (wastenot.folder / "state.csv").write_text(sweep_csv(extra))
        ran = wastenot("study", "import", "state.csv", "--study", "my.db", "--device-name", "Test GPU", "--workload", "tiny",
                     "--energies", state)  # fmt: skip
        assert ran.code == 0, ran.err
    return wastenot


def test_energies_choose_the_state(both):
    plans = {}
    for name, flags in (("default", []), ("ssp", ["--energies", "ssp"]), ("context", ["--energies", "context"])):
        ran = both("kernel", "plan", "--study", "my.db", "--max-slowdown", "0.05", "--json", *flags)
        assert ran.code == 0, ran.err
        plans[name] = json.loads(ran.out)
    assert [plans[name]["state"] for name in ("default", "ssp", "context")] == ["ssp", "ssp", "context"]
    assert {plan["workload"] for plan in plans.values()} == {"tiny"}
    extra = plans["context"]["baseline"]["energy_j"] - plans["default"]["baseline"]["energy_j"]
    assert extra == pytest.approx(24 * 0.091)
    said = both("kernel", "plan", "--study", "my.db", "--energies", "context").out
    assert "after the one that runs before it" in " ".join(said.split())
    assert "--at sse" in both.refuse("kernel", "plan", "--study", "my.db", "--energies", "sse")
    for verb in (["kernel", "frontier"], ["kernel", "frontier", "--compare"]):
        found = json.loads(both(*verb, "--study", "my.db", "--energies", "context", "--json").out)
        assert found["workload"] == "tiny"


def test_diff_with_a_study_says_what_context_changes(both):
    both("kernel", "plan", "--study", "my.db", "--max-slowdown", "0.05", "--out", "a.json")
    both("kernel", "plan", "--study", "my.db", "--max-slowdown", "0.05", "--energies", "context", "--out", "b.json")
    assert_as_agreed(both("diff", "a.json", "b.json", "--study", "my.db", "--json"), "diff_context")
    text = " ".join(both("diff", "a.json", "b.json", "--study", "my.db").out.split())
    assert (
        "The energy of 3 of 4 kernels differs between alone, steady and in context" in text and "Energy, in context" in text
    )


def test_the_report_has_a_section_where_there_are_energies_in_context(both):
    assert both("report", "my.db", "--energies", "context", "--page", "r.html").code == 0
    assert "Where the preceding kernel changes the plan" in (both.folder / "r.html").read_text(encoding="utf-8")


def test_pairs_that_cannot_be_told_are_refused(both):
    refused = both.refuse("kernel", "pairs", "--study", "my.db", "--workload", "tiny")
    assert "give a card with known peaks" in refused
    assert "--power-limit" in both.refuse("kernel", "pairs", "--study", "my.db", "--workload", "tiny", "--power-limit", "-3")
    assert "--most" in both.refuse("kernel", "pairs", "--study", "my.db", "--workload", "tiny", "--most", "0")


@pytest.mark.slow
def test_from_sweep_to_pairs_on_a_simulated_gpu(wastenot):
    ran = wastenot(*SWEEP, "--in-context", "--json")
    assert ran.code == 0, ran.err
    first = json.loads(ran.out)
    assert (
        (first["workload"], first["state"]) == ("gpt3-small", "context")
        and first["origin"] == "simulated"
        and first["measured"] > 0
    )
    again = json.loads(wastenot(*SWEEP, "--in-context", "--json").out)
    assert (again["measured"], again["found"]) == (0, first["measured"])
    found = json.loads(wastenot("kernel", "pairs", "--study", "s.db", "--most", "3", "--json").out)
    assert found["origin"] == "simulated" and found["limit_w"] == 750.0 and len(found["pairs"]) == 3
    assert all(pair["saved_j"] >= 0 for pair in found["pairs"]) and found["dependencies"] == "unknown"
    assert found["carry_over"]["share"] > 0.05
    assert [loop["name"] for loop in found["loops"]] == ["layer forward", "layer backward"]
    text = " ".join(wastenot("kernel", "pairs", "--study", "s.db").out.split())
    for part in ("numbers: simulated", "headroom", "data dependencies", "light first"):
        assert part in text, part


def test_what_a_sweep_in_context_excludes(wastenot):
    assert "--search model" in wastenot.refuse(*SWEEP, "--in-context", "--search", "model")
    assert "--search model" in wastenot.refuse(*SWEEP, "--at", "sse", "--search", "model")
    assert "use only one" in wastenot.refuse(*SWEEP, "--in-context", "--at", "sse")
