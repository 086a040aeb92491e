"""From a file into a study and out again: what the verbs import and export do."""

from __future__ import annotations

import hashlib

import pytest

from testbed.sweeps import HEADER, SMALL_CSV, assert_same
from wastenot.core.errors import BadInputError, StudyError
from wastenot.study.store import open_study
from wastenot.study.sweep_file import export_sweep, import_sweep, read_sweep


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "llama.csv"
    path.write_text(SMALL_CSV)
    return path


@pytest.fixture
def study(tmp_path):
    return tmp_path / "study.db"


def test_defaults(csv, study):
    stored = import_sweep(csv, study)
    assert (stored.workload, stored.device, stored.origin) == ("llama", "unknown", "measured")
    assert_same(open_study(study).read(), read_sweep(csv))
    (entry,) = open_study(study).summary().workloads[0].imports
    assert entry.source == "llama.csv"
    assert entry.sha256 == hashlib.sha256(SMALL_CSV.encode()).hexdigest()


def test_what_is_named_is_kept_and_the_device_carries_over(csv, study):
    import_sweep(csv, study, device="nvidia:0", workload="a", origin="simulated")
    second = import_sweep(csv, open_study(study), workload="b")
    assert (second.device, second.origin) == ("nvidia:0", "measured")
    assert open_study(study).read("a").origin == "simulated"
    with pytest.raises(BadInputError, match="'nvidia:0', not of 'amd:0'"):
        import_sweep(csv, study, device="amd:0", workload="c")


def test_twice_needs_append(csv, study):
    import_sweep(csv, study)
    with pytest.raises(BadInputError, match="already holds this content"):
        import_sweep(csv, study)
    csv.write_text(SMALL_CSV.replace("0.5", "0.75"))
    with pytest.raises(BadInputError, match="has 3 rows already"):
        import_sweep(csv, study)
    import_sweep(csv, study, append=True)
    assert open_study(study).read().time_s.tolist() == [0.5, 0.625, 0.25, 0.75, 0.625, 0.25]


def test_bad_input_leaves_nothing(csv, study):
    csv.write_text(SMALL_CSV + "bad,1,,,0,1\n")
    with pytest.raises(BadInputError, match=r"llama.csv:5: time_s"):
        import_sweep(csv, study)
    with pytest.raises(BadInputError, match="no such file"):
        import_sweep(csv.with_name("none.csv"), study)
    csv.write_text(f"{HEADER}\nqkv,25,,,1,1\n")
    with pytest.raises(BadInputError, match="origin: 'guessed' must be one of"):
        import_sweep(csv, study, origin="guessed")
    assert not study.exists()


def test_export_gives_the_file_back(csv, study, tmp_path):
    import_sweep(csv, study)
    written = export_sweep(study, tmp_path / "out.csv")
    assert_same(read_sweep(tmp_path / "out.csv", workload="llama"), written)
    assert (tmp_path / "out.csv").read_bytes() == SMALL_CSV.replace("\n", "\r\n").encode()


def test_export_refuses_to_overwrite_the_study(csv, study):
    import_sweep(csv, study)
    before = study.read_bytes()
    with pytest.raises(BadInputError, match="is the study itself"):
        export_sweep(study, study)
    assert study.read_bytes() == before


def test_export_of_what_is_not_there(csv, study, tmp_path):
    with pytest.raises(StudyError, match="there is no study"):
        export_sweep(study, tmp_path / "out.csv")
    import_sweep(csv, study)
    with pytest.raises(BadInputError, match="there is no 'lama'; did you mean 'llama'"):
        export_sweep(study, tmp_path / "out.csv", "lama")
    with pytest.raises(BadInputError, match=r"/dev/full: cannot be written: No space left"):
        export_sweep(study, "/dev/full")
    assert not (tmp_path / "out.csv").exists()
    assert not study.with_name("none.db").exists()


def test_the_measured_sweep_comes_back_byte_for_byte_with_its_known_totals(shared_data, study, tmp_path):
    file = shared_data / "rtx3080ti-polybench" / "sweep.csv"
    import_sweep(file, study, device="RTX 3080 Ti")
    export_sweep(study, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == file.read_bytes()
    (workload,) = open_study(study).summary().workloads
    assert workload.auto_time_s == pytest.approx(1.4157536952969, rel=1e-12)
    assert workload.auto_energy_j == pytest.approx(257.7024687481523, rel=1e-12)
    assert (workload.kernels, workload.rows) == (43, 1146)
