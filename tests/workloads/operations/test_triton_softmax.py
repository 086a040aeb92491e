"""The Triton kernels of causal softmax touch the lower triangle only; Triton's interpreter needs no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_it_touches_the_words_up_to_the_diagonal_and_is_right():
    # Triton asks for the interpreter when it is imported, so this is a program of its own.
    program = [sys.executable, "-m", "testbed.interpreted_softmax"]
    around = {"cwd": Path(__file__).parents[3], "env": os.environ | {"TRITON_INTERPRET": "1"}}
    done = subprocess.run(program, capture_output=True, text=True, check=False, **around)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
