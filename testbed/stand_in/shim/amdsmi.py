"""AMD's ``amdsmi`` over the stand-in's library: put this folder first on PYTHONPATH, name the server in STAND_IN_AMDSMI."""

import ctypes
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ELSEWHERE = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
_REAL = importlib.machinery.PathFinder.find_spec("amdsmi", _ELSEWHERE)
if _REAL is None or _REAL.loader is None:
    raise ImportError("amdsmi is not installed: the stand-in for AMD SMI needs its classes and constants")
_loaded = ctypes.CDLL


def _library(name, *arguments, **options):
    """The stand-in instead of libamd_smi.so, where a server is named."""
    if "libamd_smi" not in str(name):
        return _loaded(name, *arguments, **options)
    from testbed.stand_in.amd_library import SOCKET_VARIABLE, Library

    if not os.environ.get(SOCKET_VARIABLE):
        raise OSError("libamd_smi.so: cannot open shared object file: no server is named")
    return Library()


_module = importlib.util.module_from_spec(_REAL)
sys.modules["amdsmi"] = _module
ctypes.CDLL = _library
try:
    _REAL.loader.exec_module(_module)
finally:
    ctypes.CDLL = _loaded
