"""What identifies a workload (name, state, granularity, shape) holds together from the sweep to the last verb."""

import json
import shutil

import pytest

from testbed.toy_gpu import TOY

FAST = ["--core", "600,1500", "--memory", "9501", "--warm-up", "0.1s", "--window", "0.1s", "--relative-error", "0.5"]
DEVICE = "sim:toy.toml"


def ran(wastenot, *arguments):
    done = wastenot(*arguments)
    assert done.code == 0, done.err
    return done


def document(wastenot, *arguments):
    return json.loads(ran(wastenot, *arguments, "--json").out)


@pytest.fixture
def toy(wastenot):
    shutil.copy(TOY, wastenot.folder / "toy.toml")
    return wastenot


def sweep(toy, study, *flags, model="gpt3-small"):
    return document(toy, "kernel", "sweep", model, "--device", DEVICE, "--study", study, *FAST, *flags)


@pytest.mark.parametrize("granularity", ["pass", "iteration"])
def test_every_verb_takes_what_was_measured_as_a_whole(toy, granularity):
    swept = sweep(toy, "s.db", "--granularity", granularity)
    assert (swept["workload"], swept["granularity"], swept["state"]) == ("gpt3-small", granularity, "ssp")
    plan = document(toy, "kernel", "plan", "--study", "s.db", "--max-slowdown", "0.5", "--out", "p.json")
    assert (plan["workload"], plan["measured_granularity"], plan["model"]) == ("gpt3-small", granularity, "gpt3-small")
    checked = document(
        toy, "kernel", "validate", "--study", "s.db", "--plan", "p.json", "--device", DEVICE, "--repeats", "2"
    )
    assert checked["validation"]["repeats"] == 2
    moved = document(toy, "kernel", "transfer", "--plan", "p.json", "--device", DEVICE, "--batch", "40,4", "--repeats", "2")
    assert [row["workload"] for row in moved["rows"]] == ["gpt3-small", "gpt3-small-batch4"]
    assert document(toy, "kernel", "refine", "--study", "s.db", "--device", DEVICE, "--repeats", "1")["measured"] > 0


@pytest.mark.slow
def test_granularities_and_states_live_side_by_side(toy):
    for flags in ((), ("--granularity", "pass"), ("--in-context", "--core", "1500")):
        sweep(toy, "s.db", *flags)
    held = document(toy, "show", "s.db")["workloads"]
    assert {(one["name"], one["state"], one["granularity"]) for one in held} == {
        ("gpt3-small", "ssp", "kernel"), ("gpt3-small", "ssp", "pass"), ("gpt3-small", "context", "kernel"),
    }  # fmt: skip
    plans = {}
    for name, flags in {"kernel": (), "pass": ("--granularity", "pass"), "context": ("--energies", "context")}.items():
        plans[name] = document(toy, "kernel", "plan", "--study", "s.db", *flags, "--out", f"{name}.json")
    assert plans["kernel"]["measured_granularity"] == "kernel" and len(plans["kernel"]["assignments"]) > 10
    assert plans["pass"]["measured_granularity"] == "pass" and len(plans["pass"]["assignments"]) < 6
    assert plans["context"]["state"] == "context"
    for name in plans:
        checked = document(
            toy, "kernel", "validate", "--study", "s.db", "--plan", f"{name}.json", "--device", DEVICE, "--repeats", "2"
        )
        assert checked["validation"]["repeats"] == 2
    moved = document(
        toy, "kernel", "transfer", "--plan", "context.json", "--device", DEVICE, "--batch", "4", "--repeats", "2"
    )
    assert moved["rows"][0]["workload"] == "gpt3-small-batch4"


@pytest.mark.parametrize(
    ("model", "flags", "file"),
    [
        ("gpt3-small", ("--granularity", "pass"), "out.csv"),
        ("llama-8b", ("--in-context", "--phase", "decode", "--core", "1500"), "out.parquet"),
    ],
)
def test_a_file_carries_what_it_is_of(toy, model, flags, file):
    sweep(toy, "s.db", *flags, "--batch", "4", model=model)
    ran(toy, "kernel", "plan", "--study", "s.db", "--out", "p.json")
    ran(toy, "study", "export", file, "--study", "s.db")
    name = ("--workload", "another name")
    ran(toy, "study", "import", file, "--study", "again.db", "--device-name", "Toy GPU", *name)
    ran(toy, "kernel", "plan", "--study", "again.db", "--out", "q.json")
    first, second = (json.loads((toy.folder / plan).read_text()) for plan in ("p.json", "q.json"))
    for field in ("state", "measured_granularity", "model", "shape"):
        assert second[field] == first[field], field
    assert second["shape"]["batch"] == 4
    assert second["predicted"]["energy_j"] == first["predicted"]["energy_j"]
    if "--in-context" not in flags:  # that is in the slow test above
        moved = document(toy, "kernel", "transfer", "--plan", "q.json", "--device", DEVICE, "--batch", "2", "--repeats", "2")
        assert moved["rows"][0]["workload"] == "gpt3-small-batch2"


def test_passes_tied_from_kernels_stay_possible(toy):
    sweep(toy, "s.db")
    tied = document(toy, "kernel", "plan", "--study", "s.db", "--granularity", "pass")
    assert (tied["granularity"], tied["measured_granularity"]) == ("pass", "kernel")
    assert "was measured by kernel, not by pass" in toy.refuse(
        "study", "export", "x.csv", "--study", "s.db", "--granularity", "pass"
    )


def test_what_is_not_of_a_model_cannot_be_run_at_other_shapes(study):
    ran(study, "kernel", "plan", "--study", "my.db", "--out", "p.json")
    said = study.refuse("kernel", "transfer", "--plan", "p.json", "--device", "sim:h200", "--batch", "4")
    assert "'tiny' is not known to be a model's" in said


def test_a_file_that_contradicts_the_flags_is_refused(toy):
    header = "kernel,count,core_mhz,memory_mhz,time_s,energy_j,state,model,batch\n"
    (toy.folder / "x.csv").write_text(header + "a,1,,,1,1,context,gpt3-xl,4\nb,1,,,1,1,sse,gpt3-xl,4\n")
    into = ("--study", "x.db")
    assert "x.csv:3: state: is 'sse', but 'context' in the first row" in toy.refuse("study", "import", "x.csv", *into)
    (toy.folder / "x.csv").write_text(header + "a,1,,,1,1,context,gpt3-xl,4\n")
    assert "sets context" in toy.refuse("study", "import", "x.csv", *into, "--energies", "sse")
    (toy.folder / "x.csv").write_text(header + "a,1,,,1,1,warm,gpt3-xl,4\n")
    assert "x.csv:2: state: is 'warm'; must be one of ssp, sse, context" in toy.refuse("study", "import", "x.csv", *into)
    (toy.folder / "x.csv").write_text(header + "a,1,,,1,1,,gpt3-xl,four\n")
    assert "x.csv:2: batch: is 'four'; must be a whole number" in toy.refuse("study", "import", "x.csv", *into)
    (toy.folder / "x.csv").write_text(header + "a,1,,,1,1,,,4\n")
    assert "x.csv:2: model: is missing" in toy.refuse("study", "import", "x.csv", *into)


def test_a_study_of_an_earlier_schema_gets_one_line(study):
    import sqlite3

    with sqlite3.connect(study.folder / "my.db") as connection:
        connection.execute("UPDATE wastenot_study SET schema_version = 1")
    connection.close()
    assert "early wastenot (schema 1; this one reads 10); measure again" in study.refuse(
        "kernel", "plan", "--study", "my.db"
    )
