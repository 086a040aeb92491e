"""Samples are listed with what they are, copied, and read by the commands that they are for."""

import json
import tomllib

import pytest

from testbed import ROOT
from wastenot.core.errors import BadInputError
from wastenot.core.samples import FOLDER, copy_samples, sample_file, samples
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.traces import read_trace

NAMES = tuple(samples())


def test_each_file_is_listed_in_a_line_and_all_are_small(wastenot):
    assert {path.name for path in FOLDER.iterdir()} == {*NAMES, "README.md"}
    ran = wastenot("samples", COLUMNS="80")
    assert [line.split()[0] for line in ran.out.splitlines()] == list(NAMES)
    assert all("made up" in said or "simulated" in said for said in samples().values())
    assert max(map(len, ran.out.splitlines())) <= 100
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 300_000


def test_documents_list_them_too(wastenot):
    ran = wastenot("samples", "grid.csv", "--json")
    assert [one["name"] for one in json.loads(ran.out)["samples"]] == list(NAMES)
    assert json.loads(ran.out)["written"] == ["grid.csv"]


def test_they_are_package_data():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "samples/*" in settings["wastenot"]


def test_they_are_copied_and_nothing_is_replaced_unasked(wastenot, tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()
    assert wastenot("samples", "grid.csv", "steps.csv", "--out", "copies").code == 0
    assert sorted(path.name for path in copies.iterdir()) == ["grid.csv", "steps.csv"]
    (copies / "steps.csv").write_text("mine")
    said = wastenot.refuse("samples", "--all", "--out", "copies")
    assert "steps.csv: already exists; --force replaces it, or name another folder with --out" in said
    assert len(list(copies.iterdir())) == 2
    assert wastenot("samples", "--all", "--force", "--out", "copies").code == 0
    assert {path.name for path in copies.iterdir()} == set(NAMES)
    assert (copies / "steps.csv").read_bytes() == sample_file("steps.csv").read_bytes()


def test_what_cannot_be_copied_is_said(wastenot, tmp_path):
    assert "did you mean 'steps.csv'" in wastenot.refuse("samples", "step.csv")
    assert "leave out the names" in wastenot.refuse("samples", "--all", "grid.csv")
    assert "is not a folder" in wastenot.refuse("samples", "--all", "--out", str(tmp_path / "none"))
    with pytest.raises(BadInputError, match="not a sample"):
        copy_samples(["../__init__.py"], tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve recommend {}/leaderboard.csv --itl 20ms", "simulated"),
        ("pipeline plan {}/profile.csv --micro-batches 2 --waiting-power 70 --switch-time 0", "numbers: simulated"),
        ("serve profile {}/steps.csv --as-measured", "numbers: simulated"),
    ],
)
def test_tables_that_were_simulated_say_so(wastenot, words, said):
    ran = wastenot(*words.format(FOLDER).split())
    assert ran.code == 0 and said in ran.out, ran.err
    assert "numbers: measured" not in ran.out and "; measured)" not in ran.out


@pytest.mark.parametrize("name", ["leaderboard.csv", "profile.csv", "steps.csv"])
def test_an_unknown_origin_is_refused(wastenot, name):
    (wastenot.folder / name).write_text(sample_file(name).read_text().replace(",simulated\n", ",dreamt\n", 1))
    words = {
        "leaderboard.csv": ("serve", "recommend", name, "--itl", "20ms"),
        "profile.csv": ("pipeline", "plan", name, "--micro-batches", "2", "--waiting-power", "70"),
        "steps.csv": ("serve", "profile", name),
    }
    said = wastenot.refuse(*words[name])
    assert f"{name}:2: origin: 'dreamt' must be measured or simulated" in said


def test_a_profile_and_a_trace_are_named_as_samples(wastenot):
    assert read_engine("sample:engine.json").engine() is not None
    assert len(read_trace("sample:requests.csv").requests) > 0
    assert "did you mean 'engine.json'" in wastenot.refuse("serve", "control", "sample:engin.json", "--for", "1s")
