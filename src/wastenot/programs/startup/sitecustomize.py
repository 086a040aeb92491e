"""Runs at the start of every Python that ``wastenot apply`` has started, and instruments it once it imports PyTorch.

Python imports the first ``sitecustomize`` on its path, which is this one: it runs the next one too, as if it were not there.
A program whose Python lacks wastenot, as in an environment of its own, is instrumented all the same.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


class _OnceImported:
    """Finds PyTorch as others would, and has it instrumented when it has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As finders do; finds nothing but PyTorch."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    self._instrument(spec)
                    return spec
        return None

    def _instrument(self, spec: Any) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            try:
                _watch(module)
            except Exception as error:  # the program must not suffer
                print(f"wastenot: this program runs without the plan: {error}", file=sys.stderr)

        loader.exec_module = exec_module


def _watch(torch: ModuleType) -> None:
    absent = False
    try:
        import wastenot  # noqa: F401
    except ImportError:  # only what needs nothing else is used, from where it stands
        absent = True
        package = sys.modules["wastenot"] = ModuleType("wastenot")
        package.__path__ = [_PACKAGE]
    try:
        from wastenot.programs.instrumented import watch_from_outside
    finally:
        if absent:
            del sys.modules["wastenot"]
    watch_from_outside(torch)


def _run_the_next() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


if os.environ.get("WASTENOT_APPLY"):
    sys.meta_path.insert(0, _OnceImported())
_run_the_next()
