"""An import that is killed at any moment leaves the study as it was, or complete: never anything between."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

from testbed import ROOT
from testbed.sweeps import assert_same, large_sweep, small_sweep
from wastenot.study.store import open_study

_IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
from testbed import ROOT
from testbed.sweeps import large_sweep
from wastenot.study.store import open_study
sweep = large_sweep(60_000)
print("ready", flush=True)
sys.stdin.readline()
open_study(sys.argv[2], create=True).add(sweep, source="x")
print("done", flush=True)
"""


def start(path):
    program = subprocess.Popen(
        [sys.executable, "-c", _IMPORT, str(ROOT), path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout.readline() == "ready\n"
    program.stdin.write("go\n")
    program.stdin.flush()
    return program


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "a study"])
def test_killed_imports(tmp_path, before):
    template = tmp_path / "template.db"
    if before == "a study":
        open_study(template, create=True).add(small_sweep(), source="s")
    unharmed = start(tmp_path / "whole.db")
    began = time.monotonic()
    assert unharmed.communicate()[0] == "done\n"
    duration_s = time.monotonic() - began

    rng = random.Random(20)
    outcomes = []
    for trial in range(20):
        path = tmp_path / f"{trial}.db"
        if template.exists():
            path.write_bytes(template.read_bytes())
        program = start(path)
        time.sleep(duration_s * rng.uniform(0, 1.1))
        program.send_signal(signal.SIGKILL)
        program.communicate()
        kept = tuple(key.name for key in open_study(path).workloads()) if path.exists() else ()
        old = ("w",) if template.exists() else ()
        assert kept in (old, (*old, "large"))
        outcomes.append("large" in kept)
        if old:
            assert_same(open_study(path).read("w"), small_sweep())
        if "large" not in kept:
            # And what is left can be imported into, as if nothing had been.
            open_study(path, create=True).add(large_sweep(60_000), source="again")
        assert_same(open_study(path).read("large"), large_sweep(60_000))
        assert not path.with_name(path.name + "-journal").exists()
    assert not all(outcomes), "no import was killed before its end: the test has tested nothing"
