"""Tables, words and totals."""

from __future__ import annotations

import dataclasses
import re

import pytest

from wastenot.core.errors import BadInputError
from wastenot.kernels.page.story import story_of
from wastenot.kernels.page.summary import describe_goal, plan_numbers, warnings
from wastenot.kernels.page.tables import (
    applicable_table,
    comparison_table,
    describe_objective,
    kernel_table,
    kernel_table_by_pass,
)
from wastenot.kernels.plan.overview import make_overview
from wastenot.pages.formatting import change, digits_within, fraction_of_whole, number, percent, quantity, shortened
from wastenot.pages.price import Price, energy_text
from wastenot.planning.comparison import Comparison, ComparisonRow, compare
from wastenot.planning.objective import Objective
from wastenot.planning.planner import plan


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


def test_the_kernel_table_has_the_most_joules_saved_first_and_folds_small_ones(demo_plan):
    table = kernel_table(demo_plan)
    assert [column.title for column in table.columns][2:5] == ["Calls", "Core, MHz", "Memory, MHz"]
    assert sorted(row.values[0] for row in table.rows) == sorted(row.kernel for row in demo_plan.assignments)
    saved = [row.values[-2] for row in table.rows]
    assert saved == sorted(saved, reverse=True)
    assert sum(saved) == pytest.approx(demo_plan.baseline.energy_j - demo_plan.predicted.energy_j)
    assert sum(row.values[-1] for row in table.rows) == pytest.approx(1.0)
    assert table.note is None
    assert all(len(row.texts) == len(row.values) == len(table.columns) for row in table.rows)
    shown = table.fold.shown
    assert 5 <= shown <= 14 and plain(table.fold.label).startswith(f"{46 - shown} more kernels, which save ")
    brief = kernel_table(demo_plan, brief=True)
    assert [row.values[0] for row in brief.rows] == [row.values[0] for row in table.rows]
    assert "Pass" not in [column.title for column in brief.columns]


def test_the_papers_table_is_by_pass_in_order_of_execution(demo_plan):
    table = kernel_table_by_pass(demo_plan)
    assert [row.values[0] for row in table.rows] == [row.kernel for row in demo_plan.assignments]
    assert list(dict.fromkeys(row.group for row in table.rows)) == [
        "embedding",
        "forward",
        "loss",
        "backward",
        "embedding_backward",
    ]
    first, assigned = table.rows[0], demo_plan.assignments[0]
    assert [plain(text) for text in first.texts] == ["wte_wpe", "1", "840", "9,501", "+0.43 %", "−49.09 %", "<0.1 %"]
    assert first.values[2:6] == (assigned.core_mhz, assigned.memory_mhz, assigned.time_change, assigned.energy_change)
    assert sum(row.values[-1] for row in table.rows) == pytest.approx(1.0)


def test_a_long_table_says_what_it_leaves_out(demo_plan):
    table = kernel_table(demo_plan, 10)
    assert len(table.rows) == 10
    assert table.note.startswith("36 more kernels, which use ")
    kept = {row.values[0] for row in table.rows}
    assert "down_dweight_gemm" in kept
    assert "wte_wpe" not in kept


def test_the_comparison_table_has_every_row_and_every_reason():
    rows = (
        ComparisonRow("pass", "local", Objective("edp"), None, None, "kernels share no setting"),
        ComparisonRow("kernel", "global", Objective("waste", 0.02), 0.0199, -0.125),
    )
    table = comparison_table(Comparison("w", "d", "measured", "pass", rows))
    assert [row.note for row in table.rows] == ["kernels share no setting", None]
    assert [plain(text) for text in table.rows[0].texts] == ["EDP", "local", "–", "–"]
    assert [plain(text) for text in table.rows[1].texts] == ["waste, up to 2 % slower", "global", "+1.99 %", "−12.50 %"]
    assert table.rows[1].values[2:] == (0.0199, -0.125)


def test_a_comparison_without_common_settings_gives_reasons(shared_data):
    from wastenot.study.sweep_file import read_sweep

    sweep = read_sweep(shared_data / "rtx3080ti-polybench" / "sweep-share.csv")
    table = comparison_table(compare(dataclasses.replace(sweep)))
    assert len(table.rows) == 24


def test_a_plan_of_another_sweep_is_refused(cases):
    one, other = cases["one setting"](), cases["only auto"]()
    from testbed.drawn_sweeps import make_sweep
    from wastenot.study.sweep import Kernel

    sweep = make_sweep([Kernel("alone", 2)], 1)
    for data in (one, other):
        with pytest.raises(BadInputError, match="not made from this sweep"):
            make_overview(sweep, data.plan)


def test_the_numbers_state_energy_cost_and_proof(demo_plan):
    found = {card.label: card for card in plan_numbers(demo_plan, Price(0.25, "EUR"))}
    assert found["Certificate"].value == "best of those given"
    assert plain(found["1,000 iterations"].value) == "0.0302 kWh saved"
    assert plain(found["1,000 iterations"].detail).startswith(
        "0.00754 EUR at 0.25 EUR per kWh; they use 0.970 kWh, 0.243 EUR"
    )
    assert plain(found["Largest time saving"].value) == "0.20 %"
    assert found["Clock switches"].value == "846 per iteration"
    assert plain(found["Clock switches"].detail).endswith(
        "at a setting on average, 31.5 µs at least (projection_dbias_reduce)"
    )
    # The plan saves exactly what the default clocks waste: one number, said once.
    assert "Waste at the default clocks" not in found


def test_a_gpu_year_is_8760_hours_at_the_default_clocks(demo_plan):
    plan = demo_plan
    found = {card.label: card for card in plan_numbers(plan, Price(0.25, "EUR"))}["A GPU-year"]
    watts = plan.baseline.energy_j / plan.baseline.time_s
    saved_kwh = -plan.today.energy_change * watts * 8.760
    assert plain(found.value) == f"{saved_kwh:.1f} kWh saved"
    assert "8,760 h" in found.detail and f"{saved_kwh * 0.25:.1f} EUR at 0.25 EUR per kWh" in plain(found.detail)
    assert f"{watts * 8.760:,.0f} kWh" in plain(found.detail)


@pytest.mark.parametrize("joules", [0.0, 3e-15, 1e-9, 2.5e-4, 0.7, 3.2e3, 8.9e6, 4e12, 7e21])
def test_amounts_are_never_written_with_an_exponent(joules):
    price = Price(0.15, "USD")
    for text in (energy_text(joules), energy_text(-joules), price.cost_text(joules), price.cost_text(-joules)):
        assert not re.search(r"[0-9]e[−+-]?[0-9]", text), text
    assert plain(price.cost_text(3e-15)) == "less than 0.001 USD"
    assert plain(energy_text(2.5e-4)) == "69.4 nWh"


def test_what_can_be_applied_is_stated_beside_the_potential(demo_sweep, coarse_sweep):
    made = plan(demo_sweep, Objective("waste", 0.02))
    table = applicable_table(made)
    assert [row.values[0] for row in table.rows] == [
        "each kernel", "each stretch of a schedule", "each pass", "the iteration",
    ]  # fmt: skip
    by_kernel, scheduled, by_pass, whole = table.rows
    assert [row.values[1] for row in (by_kernel, by_pass, whole)] == [row.energy_change for row in made.applicable.rows]
    first = made.schedule.rungs[0]
    assert scheduled.values[1] == first.energy_change and plain(scheduled.texts[-1]) == "yes: its schedule"
    assert plain(by_kernel.texts[-1]) == f"as a schedule: energy {plain(scheduled.texts[1])}"
    assert plain(by_pass.texts[-1]).startswith("as a schedule: energy ")
    setting = made.applicable.rows[-1].setting
    words = f"core {setting.core_mhz:,g} / memory {setting.memory_mhz:,g} MHz"
    assert plain(whole.texts[-1]) == f"yes: {words}"
    assert "assumed until you measure it and pass --switch-time" in table.note
    story = story_of(made, None)
    (today, _, _) = story.panels
    digits = digits_within(made.today.energy_change_interval)
    saving = percent(-first.energy_change, digits)
    assert today.value == f"{saving} saved" and "nvidia-smi -i 0 -lgc 0," in today.lines[-1].text
    assert f"by a schedule of {first.switches} switches" in today.text
    assert f"save {saving} of the energy" in story.effect
    assert kernel_table(made).note is None or "the expected part of that" in kernel_table(made).note

    quick = plan(coarse_sweep, Objective("waste", 0.02), switch_time_s=1e-9)
    assert plain(applicable_table(quick).rows[0].texts[-1]) == "yes"
    story = story_of(quick, None)
    switches = quick.applicable.rows[0].switches_per_iteration
    _, today, rest = story.panels
    assert switches > 100 and today.value == "the whole plan"
    assert f"in {switches} switches per iteration" in today.text
    assert rest.value == "nothing more"


def test_a_memory_clock_that_waits_for_the_driver_is_said_to():
    from testbed.drawn_sweeps import make_sweep
    from wastenot.study.sweep import Kernel

    sweep = dataclasses.replace(make_sweep([Kernel("one", 2), Kernel("two", 3)], 9), device="NVIDIA H200")
    made = plan(sweep, Objective("energy"))
    assert made.applicable.rows[-1].commands[1].startswith("nvidia-smi -i 0 -lmcd ")
    today = story_of(made, None).panels[0]
    assert "takes effect when the driver is loaded again" in today.note
    assert today.undo == ("nvidia-smi -i 0 -rgc", "nvidia-smi -i 0 -rmcd")
    other = story_of(plan(dataclasses.replace(sweep, device="RTX 3080 Ti"), Objective("energy")), None).panels[0]
    assert "loaded again" not in other.note
    assert other.undo == ("nvidia-smi -i 0 -rgc", "nvidia-smi -i 0 -rmc")


def test_a_plan_that_cannot_be_applied_at_any_granularity_says_so():
    from testbed.drawn_sweeps import make_sweep
    from wastenot.study.sweep import Kernel

    sweep = make_sweep([Kernel("one", 2), Kernel("two", 3)], 9)
    fastest = plan(sweep, Objective("time")).predicted.time_change
    made = plan(sweep, Objective("waste", 0.9999 * fastest, as_measured=True))
    assert made.applicable.finest is None
    story = story_of(made, None)
    today, _, rest = story.panels
    assert today.value == "nothing yet" and "no such plan with one setting" in today.text
    assert rest.value == "all of it"
    assert "by the numbers as measured, " in applicable_table(made).rows[-1].note


def test_a_plan_that_never_switches_is_not_warned_about(cases):
    data = cases["only auto"]()
    found = {card.label: card for card in plan_numbers(data.plan, None)}
    assert found["Clock switches"].value == "none"
    assert "no electricity price" in found["1,000 iterations"].detail
    assert not any("switch" in warning for warning in warnings(data.plan))


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (Objective(), "least energy with no slowdown, by the numbers as measured"),
        (Objective("waste", 0.02), "least energy at no more than 2.00 % slowdown, by the numbers as measured"),
        (Objective("waste", 0.02, confidence=0.95), "least energy at no more than 2.00 % slowdown with 95.0 % confidence"),
        (Objective("edp", edp_exponent=2.0), "least energy × time^2, by the numbers as measured"),
        (Objective("energy"), "least energy, whatever the time, by the numbers as measured"),
    ],
)
def test_goals_in_words(objective, words):
    from testbed.drawn_sweeps import make_sweep
    from wastenot.study.sweep import Kernel

    sweep = make_sweep([Kernel("alone", 1)], 12)
    assert plain(describe_goal(plan(sweep, objective).objective)) == words


def test_words():
    assert plain(percent(-1e-9)) == "0.00 %"
    assert plain(percent(-0.1029)) == "−10.29 %"
    assert change(None) == "–"
    assert plain(change(0.5)) == "+50.00 %"
    assert plain(fraction_of_whole(0.0001)) == "<0.1 %"
    assert plain(fraction_of_whole(0.0)) == "0.0 %"
    assert plain(quantity(0.011923, "s")) == "11.92 ms"
    assert plain(quantity(3132.82, "J")) == "3,133 J"
    assert plain(quantity(2.5e6, "J")) == "2.500 MJ"
    assert plain(quantity(0.0, "J")) == "0 J"
    assert number(-1234.5) == "−1,234" or number(-1234.5) == "−1,235"
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 10) == "abcde…hijk"
    assert len(shortened("x" * 900, 34)) == 34
    assert describe_objective(Objective("waste", -0.01)).startswith("waste, at least")
