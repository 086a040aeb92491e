"""Profiles corrected by the steps of a server: scales and overhead are found again, and what is no record is left out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.corrected import corrected
from wastenot.serving.model.profile_file import EngineProfile, read_engine
from wastenot.serving.model.step_records import StepRecords, read_step_records

HEAD = {"schema": "wastenot.steps/1", "engine": "vllm 0.32.0", "model": "tiny", "gpus": 1}
ROW = {"running": 4, "prefill_tokens": 0, "decode_tokens": 4, "cache_tokens": 2000, "step_s": 0.01, "wait_s": 0.009}


def server(engine, *, overhead_s=0.004, prefill=1.3, decode=1.2, steps=400, noise=0.02, core_mhz=np.nan, seed=0):
    """Steps of a server that differs from the profile of its engine."""
    rng = np.random.default_rng(seed)
    new = np.where(rng.random(steps) < 0.3, rng.integers(16, 512, steps), 0).astype(float)
    made = np.where((new > 0) & (rng.random(steps) < 0.3), 0, rng.integers(1, 64, steps)).astype(float)
    context, tables = rng.uniform(100, 4000, steps), engine.tables
    at = len(tables.settings) - 1 if np.isnan(core_mhz) else [each.core_mhz for each in tables.settings].index(core_mhz)
    times = []
    for n, b, c in zip(new, made, context, strict=True):
        full = decode * tables.decode(at, max(b, 1), c).time_s
        empty = decode * tables.decode(at, max(b, 1), tables.context_tokens[0]).time_s
        together = prefill * tables.prefill(at, max(n + b, 1)).time_s
        times.append(full if not n else max(together, empty) + full - empty if b else together)
    time_s = (overhead_s + np.array(times)) * np.exp(noise * rng.standard_normal(steps))
    return StepRecords("tiny", "vllm 0.32.0", 1, new, made, context, time_s, np.full(steps, core_mhz))


@pytest.mark.parametrize("core_mhz", [np.nan, 1000.0])
def test_scales_and_overhead_are_found(three_clocks, core_mhz):
    found = corrected(EngineProfile((three_clocks,)), server(three_clocks, core_mhz=core_mhz))
    assert found.overhead_s == pytest.approx(0.004, rel=0.15)
    assert found.prefill_scale == pytest.approx(1.3, rel=0.03)
    assert found.decode_scale == pytest.approx(1.2, rel=0.05)
    for each in found.off:
        assert each.before_mean > 0.05 and each.after_mean < 0.025 and each.after_worst < each.before_worst
    assert {each.quantity for each in found.off} == {"prefill time", "decode time"}
    engine, was = found.profile.engine(), three_clocks.tables
    assert np.allclose(engine.tables.decode_time_s, found.decode_scale * was.decode_time_s)
    for kind in ("prefill", "decode"):  # what a step lasts longer, with its overhead, is at half of its power
        energy_j, time_s = (getattr(engine.tables, f"{kind}_{what}") for what in ("energy_j", "time_s"))
        was_j, was_s = (getattr(was, f"{kind}_{what}") for what in ("energy_j", "time_s"))
        more_s = time_s + found.overhead_s - was_s
        assert np.allclose(energy_j + 60.0 * found.overhead_s, was_j * (1.0 + 0.5 * more_s / was_s))


def test_prompts_are_faster_by_their_clock_and_no_decode_step_exceeds_the_limit(three_clocks, tmp_path):
    was = three_clocks.tables
    powers_w = [getattr(was, f"{kind}_energy_j") / getattr(was, f"{kind}_time_s") for kind in ("prefill", "decode")]
    steps, limit_w = (
        server(three_clocks, overhead_s=0.0, prefill=0.8, decode=0.9),
        max(float(each.max()) for each in powers_w),
    )
    found = corrected(EngineProfile((replace(three_clocks, limit_w=limit_w),)), steps)
    now = found.profile.engine()
    assert found.prefill_scale == pytest.approx(0.8, rel=0.03)
    times_j = now.tables.prefill_time_s * (now.tables.prefill_energy_j + 60.0 * found.overhead_s)
    assert np.allclose(times_j, was.prefill_time_s * was.prefill_energy_j, rtol=0.03)
    drawn_j = now.tables.decode_energy_j + 60.0 * found.overhead_s
    assert (drawn_j <= limit_w * (now.tables.decode_time_s + found.overhead_s) * (1.0 + 1e-9)).all()
    assert (now.tables.decode_energy_j[0] > 0.94 * was.decode_energy_j[0]).all()  # where no limit is near
    found.profile.write(tmp_path / "engine.json")
    assert read_engine(tmp_path / "engine.json").engine().limit_w == limit_w


def test_steps_held_out_do_not_take_part(three_clocks):
    steps = server(three_clocks, noise=0.0)
    odd = (np.arange(len(steps)) * 20 // len(steps)) % 2 == 1
    spoiled = replace(steps, time_s=np.where(odd, 3.0 * steps.time_s, steps.time_s))
    found = corrected(EngineProfile((three_clocks,)), spoiled)
    assert all(each.after_mean == pytest.approx(2 / 3, abs=0.01) for each in found.off)


def test_a_profile_that_would_come_no_nearer_is_left_as_it_was(three_clocks):
    steps = server(three_clocks, overhead_s=0.0, prefill=1.0, decode=1.0, noise=0.0)
    odd = (np.arange(len(steps)) * 20 // len(steps)) % 2 == 1
    spoiled = replace(steps, time_s=np.where(odd, steps.time_s, 3.0 * steps.time_s))  # as when others kept the machine busy
    found = corrected(EngineProfile((three_clocks,)), spoiled)
    assert all(each.after_mean > 1.5 and each.before_mean < 1e-9 for each in found.off)
    assert found.profile.engine() is three_clocks
    assert (found.overhead_s, found.prefill_scale, found.decode_scale) == (0.0, 1.0, 1.0)
    assert all(note.startswith("not corrected by 400 steps") for note in found.profile.notes)
    assert all(each.mean < 1e-9 for each in found.profile.errors)


def test_servers_that_only_decoded_leave_prefills_as_they_are(three_clocks):
    steps = server(three_clocks)
    only = steps.prefill_tokens == 0
    few = StepRecords("", "", 1, *(getattr(steps, name)[only] for name in (
        "prefill_tokens", "decode_tokens", "context", "time_s", "core_mhz")))  # fmt: skip
    found = corrected(EngineProfile((three_clocks,)), few)
    assert found.prefill_scale == 1.0 and [each.quantity for each in found.off] == ["decode time"]


def test_too_few_steps_and_other_degrees(three_clocks):
    profile = EngineProfile((three_clocks,))
    with pytest.raises(BadInputError, match="10 steps are too few"):
        corrected(profile, server(three_clocks, steps=10))
    with pytest.raises(BadInputError, match="no such parallel degree"):
        corrected(profile, replace(server(three_clocks), gpus=4))


def written(path, rows, head=HEAD):
    path.write_text("\n".join([*([json.dumps(head)] if head else []), *(each if isinstance(each, str) else json.dumps(each)
                    for each in rows)]) + "\n")  # fmt: skip
    return path


def test_what_is_no_record_is_left_out(tmp_path):
    odd = {
        "step_s": [0, -1, "x", 1e9], "decode_tokens": [None, True, 0], "prefill_tokens": [-1, None],
    }  # fmt: skip
    wrong = [{**ROW, name: value} for name, values in odd.items() for value in values]
    rows = [ROW, "{", "[" * 9000, "7", *wrong, {**ROW, "core_mhz": 1500}, '{"decode_tokens": NaN}']
    found = read_step_records(written(tmp_path / "steps.jsonl", rows))
    assert found.time_s.tolist() == [0.01, 0.01] and found.context.tolist() == [500.0, 500.0]
    assert np.isnan(found.core_mhz[0]) and found.core_mhz[1] == 1500.0 and found.left_out >= 11


def test_the_file_before_is_read_first(tmp_path):
    written(tmp_path / "steps.jsonl.1", [{**ROW, "step_s": 0.02}])
    assert read_step_records(written(tmp_path / "steps.jsonl", [ROW])).time_s.tolist() == [0.02, 0.01]


@pytest.mark.parametrize(
    ("rows", "head", "says"),
    [
        ([], HEAD, "no record of a whole step"),
        ([ROW], None, "has no records of steps"),
        ([ROW], {"schema": "wastenot.plan/1"}, "is wastenot.plan/1, not records of steps"),
    ],
)
def test_files_without_records(tmp_path, rows, head, says):
    with pytest.raises(BadInputError, match=says):
        read_step_records(written(tmp_path / "steps.jsonl", rows, head))
    with pytest.raises(BadInputError, match="cannot be read"):
        read_step_records(tmp_path / "none.jsonl")


def test_as_a_command(wastenot, three_clocks, tmp_path):
    steps = server(three_clocks)
    rows = [
        {"running": 1, "prefill_tokens": n, "decode_tokens": b, "cache_tokens": c * max(b, 1), "step_s": t, "wait_s": t}
        for n, b, c, t in zip(*(each.tolist() for each in (
            steps.prefill_tokens, steps.decode_tokens, steps.context, steps.time_s)), strict=True)
    ]  # fmt: skip
    written(tmp_path / "steps.jsonl", rows)
    EngineProfile((three_clocks,)).write(tmp_path / "engine.json")
    ran = wastenot("serve", "profile", "engine.json", "--from", "steps.jsonl", "--out", "new.json", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["corrected"]["prefill_scale"] == pytest.approx(1.3, rel=0.03) and document["corrected"]["steps"] == 400
    assert read_engine(tmp_path / "new.json").engine().overhead_s == document["corrected"]["overhead_s"]
    shown = wastenot("serve", "profile", "engine.json", "--from", "steps.jsonl")
    assert "steps of the server held out" in shown.out and "corrected by 400 steps of vllm 0.32.0" in shown.out
    assert wastenot("serve", "profile", "engine.json", "--from", "engine.json").code == 2


def test_steps_of_a_real_vllm_correct_a_profile_of_another_engine():
    """Its times come nearer, on steps held out; most of the rest is noise of a machine that others shared."""
    records = read_step_records(Path(__file__).parents[1] / "recorded" / "vllm-0.32.0.steps.jsonl")
    assert (records.model, records.engine, records.gpus, len(records)) == ("tiny", "vllm 0.32.0", 1, 600)
    assert records.left_out == 0 and (records.prefill_tokens > 0).sum() > 20 and np.isnan(records.core_mhz).all()
    profile = read_engine(Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json")
    found = corrected(profile, records)
    assert [each.quantity for each in found.off] == ["prefill time", "decode time"]
    assert all(each.after_mean < each.before_mean for each in found.off)
    assert found.prefill_scale > 1.5 and 1.0 < found.decode_scale < 2.0


def ahead_of(engine, *, launch_s, prefill=1.2, decode=1.1, steps=600, seed=0):
    """Records of a server that launches each step before it hands out the tokens of the one before."""
    rng, tables = np.random.default_rng(seed), engine.tables
    new = np.where((np.arange(steps) % 5 == 4) & (rng.random(steps) < 0.7), rng.integers(16, 512, steps), 0)
    made = rng.integers(1, 32, steps)
    rows, launched_s, ran_s, handed_s = [], 0.0, 0.0, [0.0]
    for index in range(steps + 1):
        if index < steps:
            n, b = int(new[index]), int(made[index])
            empty = decode * tables.decode(-1, b, tables.context_tokens[0]).time_s
            full = decode * tables.decode(-1, b, 500.0).time_s
            takes_s = max(prefill * tables.prefill(-1, n + b).time_s, empty) + full - empty if n else full
            launched_s = handed_s[-1] + (launch_s if n else 1e-4)
        if index:
            rows[-1]["step_s"] = (out_s := max(ran_s, launched_s)) - handed_s[-1]
            handed_s.append(out_s)
        if index < steps:
            ran_s = max(ran_s + takes_s, launched_s)
            rows.append(
                {**ROW, "running": b, "prefill_tokens": n, "prefills": 1, "decode_tokens": b, "cache_tokens": 500 * b}
            )
    return rows


def test_steps_launched_ahead_are_told_apart_from_what_was_launched_in_their_time(three_clocks, tmp_path):
    """Taken one by one, the record before a step with prompts would make decode steps slower, and prompts faster."""
    empty = max(three_clocks.tables.decode(-1, 32, 500.0).time_s, three_clocks.tables.prefill(-1, 544).time_s)
    rows = ahead_of(three_clocks, launch_s=2.0 * empty)
    file = written(tmp_path / "steps.jsonl", rows, {**HEAD, "asynchronous": True})
    found = corrected(EngineProfile((three_clocks,)), read_step_records(file))
    assert found.graph_launch_s == pytest.approx(2.0 * empty, rel=0.02)
    assert all(each.after_mean < 0.03 for each in found.off)
    found.profile.write(tmp_path / "engine.json")
    again = read_engine(tmp_path / "engine.json").engine()
    assert (again.launch_s, again.graph_launch_s) == (found.launch_s, found.graph_launch_s)
    one_by_one = corrected(EngineProfile((three_clocks,)), read_step_records(written(tmp_path / "steps.jsonl", rows)))
    assert max(each.after_mean for each in one_by_one.off) > 0.1


def test_prompts_alone_take_the_time_between_outputs_where_the_engine_was_busy(tmp_path):
    prompt = {**ROW, "prefill_tokens": 700, "prefills": 2, "decode_tokens": 0, "running": 1, "wait_s": 0.001}
    rows = [{**prompt, "at": 10.0}, {**prompt, "at": 10.05, "running": 0}, {**prompt, "at": 11.0}, {**ROW, "at": 11.02}]
    found = read_step_records(
        written(tmp_path / "steps.jsonl", rows, {**HEAD, "asynchronous": True, "most_graph_tokens": 256})
    )
    assert np.isnan(found.time_s[[0, 2]]).all() and found.time_s[[1, 3]] == pytest.approx([0.05, 0.01])
    assert found.ahead.tolist() == [False, True, False, False] and found.prompts.tolist() == [2.0, 2.0, 2.0, 1.0]
    assert found.most_graph_tokens == 256
