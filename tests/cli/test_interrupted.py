"""Ctrl-C in long work: what is kept and how to resume is said, and the exit code is 130; of a sweep in a real process."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from itertools import count

import pytest

from testbed.study_rows import measured_rows
from testbed.toy_gpu import TOY
from wastenot.study.recorder import Recorder
from wastenot.terminal.progress import kept_if_interrupted, resume_with

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}


def interrupted(folder, *arguments, when="to measure", study=None):
    """Start the program, interrupt it once it has said ``when`` and a study has rows; its exit code and what it said.

    ``study`` is its path, or a pattern of several.
    """
    command = [sys.executable, "-m", "wastenot", *arguments]
    with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as process:  # fmt: skip
        said = []
        for line in process.stderr:
            said.append(line)
            if when in line:
                break
        ends_s = time.monotonic() + 300.0
        while study is not None and not any(map(measured_rows, folder.glob(study))):
            if process.poll() is not None or time.monotonic() > ends_s:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said += process.stderr.readlines()
    assert "Traceback" not in "".join(said)
    return process.returncode, "".join(said).splitlines()


def test_what_was_measured_is_kept_and_the_command_to_resume_is_said(tmp_path):
    arguments = ["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--core-step", "30", "--study", "s.db"]
    code, said = interrupted(tmp_path, *arguments, study="s.db")
    assert code == 130, said
    assert said[-2:] == [f"s.db: measurements are kept; resume: wastenot {shlex.join(arguments)}", "interrupted"]
    assert measured_rows(tmp_path / "s.db")


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["kernel", "natural", "--device", "sim:h200", "--study", "n.db"], "n.db"),
        (["kernel", "run", "gpt3-xl", "--core-step", "60", "--out", "all"], "all/study.db"),
    ],
)
def test_verbs_that_sweep_and_go_on_say_so_too(wastenot, monkeypatch, arguments, kept):
    writing, times = Recorder.writing, count()

    def interrupted_later(recorder):
        if next(times) == 2:
            raise KeyboardInterrupt
        return writing(recorder)

    monkeypatch.setattr(Recorder, "writing", interrupted_later)
    ran = wastenot(*arguments)
    assert ran.code == 130, ran.err
    command = f"wastenot {shlex.join(arguments)}"
    assert ran.err.splitlines()[-2:] == [f"{kept}: measurements are kept; resume: {command}", "interrupted"]
    assert measured_rows(wastenot.folder / kept)


@pytest.mark.slow
def test_a_reproduction_says_what_is_kept(tmp_path):
    code, said = interrupted(tmp_path, "reproduce", "--out", "all", when="measurements", study="all/**/*.db")
    assert (code, said[-1]) == (130, "interrupted")
    assert said[-2] == "all: sweeps are kept, other measurements are not; resume: wastenot reproduce --out all"


@pytest.mark.slow
def test_a_validation_says_that_nothing_is_kept(wastenot, tmp_path):
    shutil.copy(TOY, tmp_path / "toy.toml")
    sweep = ["kernel", "sweep", "gpt3-small", "--device", "sim:toy.toml", "--study", "s.db", "--core-step", "900",
             "--memory", "9501",
             "--warm-up", "0.5s", "--window", "0.5s"]  # fmt: skip
    for arguments in (sweep, ["kernel", "plan", "--study", "s.db", "--out", "p.json"]):
        assert wastenot(*arguments).code == 0
    validate = ["kernel", "validate", "--study", "s.db", "--plan", "p.json", "--repeats", "400", "--out", "checked.json"]
    code, said = interrupted(tmp_path, *validate)
    assert (code, said[-2:]) == (130, ["nothing was kept; to do it again, run the same command", "interrupted"])
    assert not (tmp_path / "checked.json").exists()


def test_before_anything_is_measured_nothing_is_said_to_be_kept(tmp_path):
    file = tmp_path / "study.db"
    with pytest.raises(KeyboardInterrupt) as early, kept_if_interrupted(resume_with("wastenot kernel sweep", file)):
        raise KeyboardInterrupt
    file.touch()
    with pytest.raises(KeyboardInterrupt) as late, kept_if_interrupted(resume_with("wastenot kernel sweep", file)):
        raise KeyboardInterrupt
    assert early.value.args == (f"{file}: nothing has been measured yet; start again: wastenot kernel sweep",)
    assert late.value.args == (f"{file}: measurements are kept; resume: wastenot kernel sweep",)


def test_a_ctrl_c_while_the_program_is_loading_is_one_line(tmp_path):
    (tmp_path / "lazy_loader.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    def ended(*command):
        done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    assert ended("-m", "wastenot", "--version") == (130, "interrupted\n")
    assert "KeyboardInterrupt" in ended("-c", "import wastenot")[1]
