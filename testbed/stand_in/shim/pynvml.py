"""NVIDIA's ``pynvml`` over the stand-in's library: put this folder first on PYTHONPATH, name the server in STAND_IN_NVML."""

import importlib.machinery
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ELSEWHERE = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
_REAL = importlib.machinery.PathFinder.find_spec("pynvml", _ELSEWHERE)
if _REAL is None or _REAL.origin is None:
    raise ImportError("nvidia-ml-py is not installed: the stand-in for NVML needs its classes and constants")
exec(importlib.machinery.SourceFileLoader("pynvml", _REAL.origin).get_code("pynvml"), globals())


def _LoadNvmlLibrary():  # noqa: N802
    """The stand-in instead of libnvidia-ml.so.1."""
    with globals()["libLoadLock"]:
        if globals()["nvmlLib"] is None:
            from testbed.stand_in.library import Library

            globals()["nvmlLib"] = Library()
