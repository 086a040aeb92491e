"""Coverage-guided fuzzing of wastenotd with atheris, beside Hypothesis (``tests/devices/clockd/test_fuzz.py``).

    pip install atheris lazy-loader                                       # in an environment of its own
    python -m benchmarks.fuzz_daemon FOLDER -max_total_time=600           # FOLDER keeps the inputs that found something new

What an input does stands in ``benchmarks/safety/daemon_messages.py``.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["wastenot.devices.clockd", "wastenot.devices.common", "wastenot.devices.nvidia"]):
    from benchmarks.safety.daemon_messages import play


def one_input(given: bytes) -> None:
    play(atheris.FuzzedDataProvider(given))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
