"""``wastenot serve profile``: profiles of engines from tables of steps."""

import json

import pytest

from testbed.serving_inputs import HEADER, STEPS, row


@pytest.fixture
def table(wastenot, tmp_path):
    (tmp_path / "steps.csv").write_text(STEPS)
    return wastenot


def test_a_profile_is_made_shown_and_shown_again(table, tmp_path):
    made = table("serve", "profile", "steps.csv", "--model", "mine", "--device", "card", "--out", "engine.json")
    assert made.code == 0, made.err
    assert "mine on card: 1,024 tokens of context (numbers: measured, fitted to steps)" in made.out
    assert "of the energy per token at batch size 64" in made.out and "compared with 2,000\xa0MHz" in made.out
    assert "engine.json: written" in made.err
    assert "decode time" in made.out and "steps held out of the fit" in made.out and "Best choices" in made.out
    again = table("serve", "profile", "engine.json")
    assert again.code == 0 and again.out == made.out


def test_the_document_has_the_points(table):
    document = json.loads(
        table("serve", "profile", "steps.csv", "--batch", "1,64", "--core", "950", "--context", "512", "--json").out
    )
    assert document["schema"] == "wastenot.engine-points/1" and document["context"] == 512
    assert {point["batch"] for point in document["points"]} == {1, 64}
    assert {point["setting"]["core_mhz"] for point in document["points"]} == {800, 950, 1100, 1400, 1700, 2000}
    least = [point for point in document["points"] if point["is_least"]]
    assert len(least) == 2 and all(point["setting"]["core_mhz"] < 2000 for point in least)
    assert any(point["on_frontier"] for point in document["points"])
    assert document["engines"][0]["evidence"] == "measured" and document["prefill"] and document["errors"]


def test_as_measured_there_is_nothing_between(table):
    document = json.loads(table("serve", "profile", "steps.csv", "--as-measured", "--json").out)
    assert document["engines"][0]["source"] == "measured" and not document["errors"]
    ran = table("serve", "profile", "steps.csv", "--as-measured", "--context", "4000")
    assert ran.code == 2 and "no decode step with 4000 tokens" in ran.err


def test_prompts_alone_are_a_profile(table, tmp_path):
    (tmp_path / "prompts.csv").write_text(HEADER + "".join(row("prefill", n, 0, 800) for n in (128, 512, 2048)))
    ran = table("serve", "profile", "prompts.csv", "--page", "prompts.html", "--out", "engine.json")
    assert ran.code == 0, ran.err
    assert "Prompts only: there are no decode steps" in ran.out and "there are no decode steps in the table" in ran.out
    assert table("serve", "profile", "engine.json").out == ran.out


def test_contexts_that_hardly_vary_tell_nothing_of_others(table, tmp_path):
    (tmp_path / "one.csv").write_text(HEADER + "".join(row("decode", b, 3900 + b, 800) for b in (8, 32, 128)))
    ran = table("serve", "profile", "one.csv")
    assert ran.code == 0, ran.err
    assert "3,908 tokens of context (numbers" in ran.out and "other contexts are unknown" in ran.out
    assert table("serve", "profile", "one.csv", "--context", "1000").code == 2


def test_page_and_figures(table, tmp_path, svg_only):
    pytest.importorskip("altair")
    ran = table("serve", "profile", "steps.csv", "--page", "engine.html", "--figures", "figures")
    assert ran.code == 0, ran.err
    page = (tmp_path / "engine.html").read_text()
    assert "Energy per token by clock" in page and "wastenot serve profile steps.csv" in page
    assert {each.stem for each in (tmp_path / "figures").iterdir()} == {
        "engine-saving",
        "engine-latency",
        "engine-clocks",
        "engine-prompts",
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.csv"], "none.csv: cannot be read"),
        (["llama-8b"], "llama-8b: name the device to measure its kernels on"),
        (["steps.csv", "--core", "2400"], "--core 2400: the table covers 800 to 2000 MHz"),
        (["steps.csv", "--core", "fast"], "--core: 'fast' is not a clock in MHz"),
        (
            ["steps.csv", "--as-measured", "--core", "950"],
            "--core, --most-context: there are no others as measured; other clocks and contexts need a fit",
        ),
        (["steps.csv", "--context", "9000"], "no decode step with 9000 tokens"),
        (["steps.csv", "--context", "9999999"], "no decode step with 9999999 tokens"),
        (["steps.csv", "--batch", "0"], "--batch: '0' is not a whole number of at least 1"),
        (["steps.csv", "--idle-power", "-5"], "--idle-power -5: must be a number of watts above 0"),
        (["steps.csv", "--switch-time", "-5ms"], "--switch-time -0.005: must be a number of seconds, at least 0"),
        (["steps.csv", "--study", "k.db"], "--study: has no effect on tables of steps; leave it out"),
        (["steps.csv", "--degrees", "2"], "--degrees: has no effect on tables of steps"),
        (["times.csv", "--as-measured"], "power: 1 decode step in the table without it, so the energy is unknown"),
        (["profile.json", "--cache-tokens", "4096"], "--cache-tokens: has no effect on a profile that is shown"),
        (["profile.json", "--core", "950"], "--core: has no effect on a profile that is shown"),
        (["steps.csv", "--batch", "300"], "no decode step of 300 sequences with 1024 tokens of context is in the profile"),
        (
            ["few.csv"],
            "decode steps of 2 sizes are too few to fit; measure at least 3, or use them unfitted with --as-m",
        ),
        (["broken.csv"], "broken.csv:2: time_s: is 'x', not a number"),
        (["broken.json"], "broken.json:1: document: is not JSON"),
        (["steps.csv", "--out", "missing/engine.json"], "missing"),
        (["steps.csv", "--out", "steps.csv"], "--out steps.csv: is read; give another file"),
        (["few.csv", "steps.csv", "--page", "steps.csv"], "--page steps.csv: is read; give another file"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(table, tmp_path, arguments, says):
    (tmp_path / "broken.csv").write_text(HEADER + "decode,1,1,1,800,x,200\n")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "times.csv").write_text("phase,sequences,tokens,context,core_mhz,time_s\ndecode,64,1,2048,1980,0.02\n")
    (tmp_path / "few.csv").write_text(HEADER + row("decode", 1, 256, 800) + row("decode", 8, 256, 800))
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    ran = table("serve", "profile", *arguments)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1 and not ran.out
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_kernels_on_a_device_make_a_profile(table, tmp_path, monkeypatch):
    from wastenot.serving.model import engine_kernels
    from wastenot.workloads.serving_steps import StepShapes

    few = StepShapes((1, 64, 128), (1, 128), (1, 64), (1, 512), (1, 64, 128), (0, 512))
    monkeypatch.setattr(StepShapes, "up_to", classmethod(lambda cls: few))
    monkeypatch.setattr(engine_kernels, "CORE_STEP_MHZ", 600.0)
    ran = table(
        "serve",
        "profile",
        "llama-8b",
        "--device",
        "sim:h200",
        "--study",
        "k.db",
        "--out",
        "e.json",
        "--context",
        "400",
        "--json",
    )
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)["engines"][0]
    assert (made["source"], made["evidence"]) == ("kernels", "simulated")
    assert (tmp_path / "k.db").exists() and (tmp_path / "e.json").exists()
    again = table("serve", "profile", "llama-8b", "--device", "sim:h200", "--study", "k.db", "--context", "400", "--json")
    assert json.loads(again.out)["points"] == json.loads(ran.out)["points"]  # nothing is measured again


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["llama-9b", "--device", "sim:h200"], "did you mean 'llama-8b'?"),
        (["llama-70b", "--device", "sim:h200"], "its 141 GB of weights leave no room for a cache in 1 × 141 GB"),
        (["llama-8b", "--device", "sim:h200", "--degrees", "3"], "--degrees 3: llama-8b can be split by 1, 2, 4, 8"),
        (["llama-8b", "--device", "sim:h201"], "sim:h201"),
        (
            ["llama-8b", "--device", "sim:h200", "--switch-time", "5ms"],
            "--switch-time: has no effect on kernels that are mea",
        ),
        (["llama-8b", "--device", "sim:h200", "--as-measured"], "--as-measured: has no effect on kernels"),
        (["llama-8b", "--device", "sim:h200", "--seed", "-1"], "--seed: "),
        (["llama-8b", "--device", "sim:h200", "--curves", "sim:h200"], "or measure them that way (--clocks auto)"),
    ],
)
def test_bad_kernels_are_one_line(table, tmp_path, arguments, says):
    ran = table("serve", "profile", *arguments)
    assert ran.code == 2 and says in ran.err and not ran.out
