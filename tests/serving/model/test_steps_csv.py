"""Tables of measured steps: read from files, as they are and fitted."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.serving.model.engine_tables import OutsideProfileError
from wastenot.serving.model.fitted import fitted_tables, held_out_errors
from wastenot.serving.model.from_steps import measured_tables, profile_of_steps
from wastenot.serving.model.step_law import fit_law
from wastenot.serving.model.steps import MeasuredStep, averaged, implausible
from wastenot.serving.model.steps_csv import StepTable, read_step_tables

HEADER = "phase,sequences,tokens,context,core_mhz,time_s,power_w\n"
CLOCKS = (900.0, 1200.0, 1500.0, 1800.0, 2100.0)
DATA = Path(__file__).parents[4] / "shared" / "data" / "serving"


def true_step(phase: str, size: float, context: float, clock: float) -> MeasuredStep:
    """A step of an engine whose law is of another kind than the fitted one: a sharp maximum, power by voltage squared."""
    ratio = 2100.0 / clock
    attended = size * (context + (size / 2 if phase == "prefill" else 0.0))
    compute, memory = 1.2e-4 * size * ratio, 0.012 + 0.002 * ratio
    time = max(compute, memory) + (3e-9 * ratio if phase == "prefill" else 7e-8) * attended
    volt = 0.75 + 0.35 * max(clock / 2100.0 - 0.6, 0.0) / 0.4
    power = 90.0 + 300.0 * clock / 2100.0 * volt**2 * (0.6 + 0.4 * compute / time)
    sequences, tokens = (1.0, size) if phase == "prefill" else (size, 1.0)
    return MeasuredStep(
        "prefill" if phase == "prefill" else "decode", sequences, tokens, context, time, power, Setting(core_mhz=clock)
    )


def made_steps() -> list[MeasuredStep]:
    prefill = [true_step("prefill", n, 0.0, clock) for clock in CLOCKS for n in (64, 128, 256, 512, 1024, 2048, 4096)]
    decode = [
        true_step("decode", b, c, clock) for clock in CLOCKS for b in (1, 4, 16, 64, 128, 256) for c in (256, 1024, 4096)
    ]
    return [*prefill, *decode]


IDLE = {Setting(core_mhz=clock): 60.0 + clock / 100.0 for clock in CLOCKS}


def read(tmp_path: Path, text: str, **choice: str) -> StepTable:
    file = tmp_path / "steps.csv"
    file.write_text(text)
    return read_step_tables([file], **choice)


def test_our_own_form_is_read(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        "gpus,phase,sequences,tokens,context,core_mhz,time_s,time_ms,power_w,energy_j\n"
        "2,prefill,1,512,128,1500,0.05,,400,\n"
        "\n"
        "2,decode,8,,1000,,,20,,6\n"
        "2,idle,,,,1500,,,118,\n"
        "2,idle,,,,1500,,,122,\n",
    )
    first, second = table.steps
    assert first == MeasuredStep("prefill", 1.0, 512.0, 128.0, 0.05, 400.0, Setting(core_mhz=1500.0), 2)
    assert second == MeasuredStep("decode", 8.0, 1.0, 1000.0, 0.02, 300.0, AUTO, 2)
    assert table.idle_power_w == {(Setting(core_mhz=1500.0), 2): 120.0}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEADER + "prefill,1,512,0,900,0.1,200\ndecode,8,1", ":3: has 3 cells where the header has 7; is it truncated?"),
        (HEADER + "prefill,1,0,0,900,0.1,200\n", ":2: tokens: is 0; must be more than 0"),
        (HEADER + "decode,0.5,1,0,900,0.1,200\n", ":2: sequences: is 0.5; must be at least 1"),
        (HEADER + "decode,8,2,0,900,0.1,200\n", ":2: tokens: is 2; a decode step makes 1"),
        (HEADER + "decode,8,1,-5,900,0.1,200\n", ":2: context: is -5; must be at least 0"),
        (HEADER + "decode,8,1,5,900,soon,200\n", ":2: time_s: is 'soon', not a number"),
        (HEADER + "decode,8,1,5,900,,200\n", ":2: time_s: is '', not a number"),
        (HEADER + "mixed,8,1,5,900,0.1,200\n", ":2: phase: is 'mixed'; must be prefill, decode or idle"),
        (HEADER, "there are no steps in it"),
        (HEADER + "idle,,,,900,,60\n", "there are no steps in it"),
        ("time,power\n1,2\n", ":1: header: this is not a table of steps"),
        ("phase,sequences,phase\n", ":1: header: a column appears twice"),
        ("", ":1: header: this is not a table of steps"),
    ],
)
def test_a_broken_table_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadInputError, match=r"steps\.csv") as caught:
        read(tmp_path, text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.csv: cannot be read"):
        read_step_tables([tmp_path / "none.csv"])


def test_one_of_several_models_is_chosen(tmp_path: Path) -> None:
    text = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"
    text += "a,x,512,1,128,60,30,8\nb,x,512,2,128,70,40,8\nb,x-pcap,512,2,128,70,40,8\n"
    with pytest.raises(BadInputError, match=r"several models; choose one with model: a, b$"):
        read(tmp_path, text)
    with pytest.raises(BadInputError, match="model c: the table has none"):
        read(tmp_path, text, model="c")
    prefill, decode = read(tmp_path, text, model="b").steps
    assert (prefill.phase, prefill.sequences, prefill.tokens, prefill.time_s, prefill.gpus) == ("prefill", 2, 512, 0.07, 8)
    assert (decode.phase, decode.sequences, decode.context, decode.time_s) == ("decode", 2, 576, 0.04)
    with pytest.raises(BadInputError, match="power: 2 decode and prefill steps in the table without it"):
        profile_of_steps(read(tmp_path, text, model="b"))


def test_repeats_are_averaged() -> None:
    step = MeasuredStep("decode", 8, 1, 100, 0.02, 300.0)
    other = MeasuredStep("decode", 8, 1, 100, 0.04, 200.0)
    assert averaged([step, other, MeasuredStep("decode", 9, 1, 100, 0.03, 1.0)]) == (
        MeasuredStep("decode", 8, 1, 100, pytest.approx(0.03), 250.0),
        MeasuredStep("decode", 9, 1, 100, 0.03, 1.0),
    )


def test_measured_tables_are_the_measurements_with_gaps() -> None:
    steps = [each for each in made_steps() if not (each.phase == "decode" and each.sequences == 256 and each.context > 1024)]
    tables = measured_tables(steps, IDLE)
    for step in steps:
        at = tables.settings.index(step.setting)
        cost = (
            tables.prefill(at, step.tokens) if step.phase == "prefill" else tables.decode(at, step.sequences, step.context)
        )
        assert (cost.time_s, cost.power_w) == (pytest.approx(step.time_s), pytest.approx(step.power_w))
    with pytest.raises(OutsideProfileError):
        tables.decode(0, 200, 2000)
    with pytest.raises(OutsideProfileError):
        tables.prefill(0, 512, 10)
    assert tables.source == "measured"
    np.testing.assert_array_equal(tables.idle_power_w, list(IDLE.values()))


def test_a_fitted_law_tells_clocks_sizes_and_contexts_between() -> None:
    """Held out here: 1,500 MHz, batches of 16 and 128, prompts of 256 and 1,024 tokens; the truth is of another form."""
    out = {16.0, 128.0, 256.0, 1024.0}

    def is_out(step: MeasuredStep) -> bool:
        size = step.sequences if step.phase == "decode" and step.sequences < 256 else step.tokens
        return step.setting.core_mhz == 1500.0 or size in out

    steps = made_steps()
    for phase in ("prefill", "decode"):
        rows = [each for each in steps if each.phase == phase]
        judged = [each for each in rows if is_out(each)]
        times, powers = fit_law([each for each in rows if not is_out(each)]).of_steps(judged)
        assert len(judged) > 10
        assert np.mean(np.abs(times / np.array([each.time_s for each in judged]) - 1)) < 0.02
        assert np.mean(np.abs(powers / np.array([each.power_w for each in judged]) - 1)) < 0.03


def test_fitted_tables_follow_the_law_and_reach_where_asked() -> None:
    tables = fitted_tables(made_steps(), IDLE, core_mhz=[1350.0], most_context=16384.0)
    assert [each.core_mhz for each in tables.settings] == [900.0, 1200.0, 1350.0, 1500.0, 1800.0, 2100.0]
    at = 2
    for size, context in ((32, 700), (200, 3000), (2, 16384)):
        true = true_step("decode", size, context, 1350.0)
        cost = tables.decode(at, size, context)
        assert (cost.time_s, cost.power_w) == (pytest.approx(true.time_s, rel=0.06), pytest.approx(true.power_w, rel=0.06))
    assert tables.prefill(at, 300, 2000).time_s == pytest.approx(true_step("prefill", 300, 2000, 1350.0).time_s, rel=0.06)
    assert tables.idle_power_w[at] == pytest.approx(73.5)
    assert tables.prefill(at, 1).time_s > 0
    with pytest.raises(OutsideProfileError):
        tables.decode(at, 257, 100)
    with pytest.raises(BadInputError, match="core_mhz 2400: the table covers 900 to 2100 MHz"):
        fitted_tables(made_steps(), IDLE, core_mhz=[2400.0])


def test_stated_errors_are_those_of_steps_held_out() -> None:
    rng = np.random.default_rng(3)
    exact = {each.quantity: each.mean for each in held_out_errors(made_steps())}
    assert set(exact) == {"prefill time", "prefill power", "decode time", "decode power"}
    assert max(exact.values()) < 0.03
    noisy = [
        MeasuredStep(
            each.phase, each.sequences, each.tokens, each.context,
            each.time_s * math.exp(0.1 * rng.standard_normal()), each.power_w, each.setting,
        )
        for each in made_steps()
    ]  # fmt: skip
    stated = {each.quantity: each for each in held_out_errors(noisy)}
    assert 0.06 < stated["decode time"].mean < 0.12  # as noisy as the steps: mean of |N(0, 0.1)| is 0.08
    assert stated["decode time"].largest > stated["decode time"].mean
    few = [each for each in made_steps() if each.sequences in (1, 256) and each.setting.core_mhz == 900.0]
    assert not [each for each in held_out_errors(few) if each.quantity == "decode time"]


def test_a_profile_says_what_it_assumes() -> None:
    steps = tuple(each for each in made_steps() if each.phase == "decode")
    profile = profile_of_steps(StepTable("m", "d", steps))
    engine = profile.engine()
    assert engine.cache_blocks == 256 * 257
    assert engine.most_running == 256
    assert any("idle power was not measured" in note for note in profile.notes)
    assert any("no prefill steps" in note for note in profile.notes)
    assert {each.quantity for each in profile.errors} == {"decode time", "decode power"}
    with pytest.raises(OutsideProfileError, match="prefill"):
        engine.tables.prefill(0, 1)
    told = profile_of_steps(StepTable("m", "d", steps), idle_power_w=50.0, cache_tokens=1600)
    assert told.engine().cache_blocks == 100
    assert set(told.engine().tables.idle_power_w) == {50.0}
    with pytest.raises(BadInputError, match="need a fit"):
        profile_of_steps(StepTable("m", "d", steps), "measured", core_mhz=[1000.0])


def test_clocks_left_alone_are_fitted_by_themselves() -> None:
    auto = [
        MeasuredStep(each.phase, each.sequences, each.tokens, each.context, 0.5 * each.time_s, each.power_w)
        for each in made_steps()
        if each.setting.core_mhz == 2100.0
    ]
    tables = fitted_tables([*made_steps(), *auto], IDLE | {AUTO: 80.0})
    assert tables.settings[-1] == AUTO
    assert tables.decode(5, 64, 1024).time_s == pytest.approx(0.5 * tables.decode(4, 64, 1024).time_s, rel=0.05)


@pytest.mark.skipif(not DATA.exists(), reason="needs the published tables")
def test_published_tables_are_read() -> None:
    pdblend = read_step_tables(DATA / f"pdblend-qwen2.5-7b-{phase}.csv" for phase in ("prefill", "decode"))
    assert (len(pdblend.steps), pdblend.model) == (36 + 114, "Qwen2.5-7B")
    assert {each.setting.core_mhz for each in pdblend.steps} == {900, 1200, 1500, 1800, 2100, 2520}
    with pytest.raises(BadInputError, match=r"several models.* and 40 more$"):
        read_step_tables([DATA / "ml-energy-h100.csv"])
    chosen = read_step_tables([DATA / "ml-energy-h100.csv"], model="Qwen/Qwen3-8B gpqa bfloat16")
    assert [round(each.sequences) for each in chosen.steps] == [8, 16, 32, 63, 82]
    splitwise = read_step_tables([DATA / "splitwise-perf-model.csv"], model="llama2-70b", device="h100-80gb")
    assert {each.gpus for each in splitwise.steps} == {2, 4, 8}
    assert len(splitwise.steps) == 2 * 315


def test_steps_that_are_too_fast_are_left_out_and_said() -> None:
    steps = [each for each in made_steps() if each.phase == "decode"]
    clock = Setting(core_mhz=1500.0)
    failed = MeasuredStep("decode", 512, 1, 1024, 0.004, 200.0, clock)
    repeats = [failed, MeasuredStep("decode", 512, 1, 1024, 0.006, 200.0, clock)]
    assert not implausible(steps)
    assert implausible([*steps, *repeats]) == (MeasuredStep("decode", 512, 1, 1024, 0.005, 200.0, clock),)
    profile = profile_of_steps(StepTable("m", "d", (*steps, *repeats)))
    assert profile.engine().most_running == 256
    assert any("left out: a decode step of 512 sequences" in note for note in profile.notes)
    slow = MeasuredStep("decode", 2, 1, 256, 10.0, 200.0, clock)  # one that was slow contradicts all that are larger
    assert implausible([*steps, slow]) == (slow,)
