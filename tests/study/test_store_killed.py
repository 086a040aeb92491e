"""An import that is killed at any moment leaves the study as it was, or complete: never anything between.

Moments are counted in CPU time of the program itself, so that it makes no difference how busy the machine is.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys

import pytest

from testbed import ROOT
from testbed.sweeps import assert_same, large_sweep, small_sweep
from wastenot.study.store import open_study

_IMPORT = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
from testbed.sweeps import large_sweep
from wastenot.study.store import open_study
sweep = large_sweep(int(sys.argv[3]))
began_s = time.process_time()
signal.setitimer(signal.ITIMER_PROF, float(sys.argv[4]))  # its signal ends the program at once
open_study(sys.argv[2], create=True).add(sweep, source="x")
signal.setitimer(signal.ITIMER_PROF, 0.0)
print(time.process_time() - began_s)
"""
_ROWS = 10_000
_TRIALS = 6


def run_import(path, ends_after_s=0.0):
    """Import into a study; with a limit, the program is killed once it has used so much CPU time for that."""
    program = [sys.executable, "-c", _IMPORT, str(ROOT), str(path), str(_ROWS), str(ends_after_s)]
    return subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "a study"])
def test_killed_imports(tmp_path, before):
    template = tmp_path / "template.db"
    if before == "a study":
        open_study(template, create=True).add(small_sweep(), source="s")
    duration_s = float(run_import(tmp_path / "whole.db").stdout)
    rng = random.Random(20)
    outcomes = []
    for trial in range(_TRIALS):
        path = tmp_path / f"{trial}.db"
        if template.exists():
            path.write_bytes(template.read_bytes())
        assert run_import(path, duration_s * rng.uniform(0.01, 1.1)).returncode in (0, -signal.SIGPROF)
        kept = tuple(key.name for key in open_study(path).workloads()) if path.exists() else ()
        old = ("w",) if template.exists() else ()
        assert kept in (old, (*old, "large"))
        outcomes.append("large" in kept)
        if old:
            assert_same(open_study(path).read("w"), small_sweep())
        if "large" not in kept:
            # And what is left can be imported into, as if nothing had been.
            open_study(path, create=True).add(large_sweep(_ROWS), source="again")
        assert_same(open_study(path).read("large"), large_sweep(_ROWS))
        assert not path.with_name(path.name + "-journal").exists()
    assert not all(outcomes), "no import was killed before its end: the test has tested nothing"
