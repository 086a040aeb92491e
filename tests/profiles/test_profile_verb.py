"""``wastenot profile run`` and ``wastenot profile compare``, as a user runs them."""

import json
import os
import subprocess
import sys
from itertools import count

import pytest

from testbed.program import Program
from wastenot.core.install import install_line
from wastenot.devices.simulated.instrument import SimulatedInstrument

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "COLUMNS": "120"}
ON = ["--device", "sim:mi300x", "--runs", "60"]
WHOLE = ["profile", "run", "gemm:8192", *ON, "--executions", "20"]
BROKEN_OFF = ["profile", "run", "gemm:4096", *ON, "--budget", "10s"]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    wastenot = Program(tmp_path_factory.mktemp("profiled"))
    ran = wastenot(*WHOLE, "--out", "p.parquet")
    assert ran.code == 0, ran.err
    return wastenot, ran


def test_profile_tells_what_it_found_and_that_it_is_simulated(profiled):
    wastenot, ran = profiled
    assert json.loads(wastenot("profile", "compare", "p.parquet", "--json").out)["profiles"][0]["complete"]
    assert wastenot("show", "p.parquet").out == ran.out
    for word in (
        "SSE",
        "SSP",
        "total",
        "XCD",
        "IOD",
        "HBM",
        "±",
        "used (execution times within",
        "ppm",
        "energy counter",
        "cycles counted",
        "numbers: simulated",
    ):
        assert word in ran.out, word
    assert "were done before" not in ran.err


def test_json_is_one_document_and_the_file_says_the_same(profiled):
    wastenot, _ = profiled
    ran = wastenot(*BROKEN_OFF, "--out", "short.parquet", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["schema"] == "wastenot.profile/1" and document["origin"] == "simulated" and not document["complete"]
    assert document["provenance"]["command"].endswith("--out short.parquet --json")
    sse, ssp = document["states"]
    assert (sse["name"], ssp["name"]) == ("SSE", "SSP") and ssp["unit"] > sse["unit"]
    assert ssp["channels"]["total"]["mean_w"] > sse["channels"]["total"]["mean_w"]
    again = json.loads(wastenot("profile", "compare", "short.parquet", "--json").out)["profiles"][0]
    assert again["states"] == document["states"] and again["clocks"] == document["clocks"]


def test_profiles_sets_them_side_by_side(profiled):
    wastenot, _ = profiled
    after = wastenot("profile", "run", "gemm:8192", "--device", "sim:mi300x", "--after", "gemv:4096x20", "--after",
                     "gemm:2048",
                     "--runs", "60", "--budget", "10s", "--out", "after.parquet")  # fmt: skip
    assert after.code == 0, after.err
    assert "after 20 × gemv-4096, 1 × gemm-2048" in after.out and "in context" in after.out
    ran = wastenot("profile", "compare", "p.parquet", "after.parquet", "--relative", "--page", "both.html")
    assert ran.code == 0, ran.err
    assert "2 power profiles" in ran.out and "100.0 ±" in ran.out.replace("\xa0", " ")
    page = (wastenot.folder / "both.html").read_text(encoding="utf-8")
    assert "SIMULATED" in page.upper() and "profiles-contexts" in page


def test_turns_are_told_from_what_comes_first(wastenot):
    ran = wastenot("profile", "run", "gemm:2048", "--device", "sim:mi300x", "--alternate", "gemm:4096", "--executions", "6",
                   "--runs", "60", "--budget", "10s", "--json")  # fmt: skip
    document = json.loads(ran.out)
    assert document["before"] == "1 × gemm-4096" and document["alternating"]


def test_kernels_of_workloads_and_outliers(wastenot):
    ran = wastenot("profile", "run", "gpt3-small:softmax", "--device", "sim:mi300x", "--batch", "8", "--runs", "60",
                   "--outliers",
                   "1", "--budget", "10s", "--json")  # fmt: skip
    document = json.loads(ran.out)
    assert (document["kernel"], document["bin_rank"]) == ("softmax", 1)


def test_interrupted_keeps_what_was_collected(wastenot, monkeypatch):
    runs = count()
    run = SimulatedInstrument._run

    def interrupted(*arguments):
        if next(runs) == 100:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(SimulatedInstrument, "_run", interrupted)
    ran = wastenot("profile", "run", "gemm:256", "--device", "sim:mi300x", "--runs", "5000", "--executions", "40",
                   "--out", "cut.parquet")  # fmt: skip
    assert ran.code == 130, ran.err
    assert "INCOMPLETE" in ran.out and "stopped early: interrupted" in ran.out and "marked incomplete" in ran.err
    document = json.loads(wastenot("profile", "compare", "cut.parquet", "--json").out)["profiles"][0]
    assert not document["complete"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gemmm:4096", "--device", "sim:mi300x"], "did you mean 'gemm:4096'"),
        (["gemm:0", "--device", "sim:mi300x"], "1 to 65536"),
        (["gemm:4096x4", "--device", "sim:mi300x"], "leave out the x4"),
        (["gpt3-xl:softmaxx", "--device", "sim:mi300x"], "did you mean 'softmax'"),
        (["gpt3-xxl:softmax", "--device", "sim:mi300x"], "did you mean 'gpt3-xl'"),
        (["none.json:softmax", "--device", "sim:mi300x"], "none.json"),
        (["gpt3-xl", "--device", "sim:mi300x"], "WORKLOAD:KERNEL"),
        (["gemm:4096", "--device", "sim:mi300y"], "did you mean 'mi300x'"),
        (["gemm:4096", "--device", "recorded:my.db"], "profile on sim:NAME or nvidia:INDEX"),
        (["gemm:4096", "--device", "sim:mi300x", "--runs", "3"], "--runs 3"),
        (["gemm:4096", "--device", "sim:mi300x", "--margin", "1.5"], "1.5 would be 150 %"),
        (["gemm:4096", "--device", "sim:mi300x", "--margin", "nan"], "--margin nan"),
        (["gemm:4096", "--device", "sim:mi300x", "--outliers=-1"], "--outliers -1"),
        (["gemm:4096", "--device", "sim:mi300x", "--executions", "0"], "--executions 0"),
        (["gemm:4096", "--device", "sim:mi300x", "--budget", "soon"], "90s, 45m or 2h"),
        (["gemm:4096", "--device", "sim:mi300x", "--seed=-1"], "--seed"),
        (["gemm:4096", "--device", "sim:mi300x", "--after", "gemm:4096"], "cannot come before itself"),
        (["gemm:4096", "--device", "sim:mi300x", "--after", "gemv:64", "--alternate", "gemv:64"], "give only one"),
        (["gemm:4096", "--device", "sim:mi300x", "--after", "gemv:64x200000"], "100,000"),
        (["gemm:4096", "--device", "sim:mi300x", "--out", "no/such/p.parquet"], "no/such"),
        (["gemm:4096", "--device", "sim:mi300x", "--out", "p.json"], ".parquet"),
        (["gemm:4096", "--device", "sim:mi300x", "--page", "no/such/p.html"], "no/such"),
        (["gemm:4096", "--device", "sim:mi300x", "--figures", "sweep.csv"], "give a folder"),
    ],
)
def test_nonsense_is_refused_in_one_line_before_anything_is_measured(wastenot, monkeypatch, arguments, says):
    monkeypatch.setattr(SimulatedInstrument, "prepare", lambda *_: pytest.fail("something is measured"))
    before = set(wastenot.folder.iterdir())
    assert says in wastenot.refuse("profile", "run", *arguments)
    assert set(wastenot.folder.iterdir()) == before


def test_without_the_report_extra_it_measures_and_says_what_files_need(wastenot):
    blocked = wastenot.folder / "blocked"
    for module in ("polars", "altair", "vl_convert", "jinja2"):
        (blocked / module).mkdir(parents=True)
        (blocked / module / "__init__.py").write_text(f"raise ImportError('no {module}')")
    needing = (["--out", "p.parquet"], ["--page", "p.html"], ["--figures", "figures"])
    code = f"import sys; sys.path.insert(0, {str(blocked)!r}); from wastenot.cli.main import run\n" + "".join(
        f"print(run({[*WHOLE, *arguments]!r}), file=sys.stderr)\n" for arguments in (*needing, [])
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=wastenot.folder, capture_output=True, text=True, check=False,
                         env=ENVIRONMENT)  # fmt: skip
    said = ran.stderr.splitlines()
    assert len(said) > 2 * len(needing), ran
    for line, code in zip(said[: 2 * len(needing) : 2], said[1 : 2 * len(needing) : 2], strict=True):
        assert line.startswith("error: ") and install_line("report") in line and code == "2"
    assert said[-1] == "0" and ran.stdout.count("SSP") >= 1 == ran.stdout.count("numbers: simulated")
    assert not (wastenot.folder / "p.parquet").exists()


def test_a_file_that_is_no_profile_is_refused(wastenot):
    assert "Parquet" in wastenot.refuse("profile", "compare", "sweep.csv")
    assert "none.parquet" in wastenot.refuse("profile", "compare", "none.parquet")
