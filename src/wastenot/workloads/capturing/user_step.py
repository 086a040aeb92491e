"""A user's training step, named as ``FILE.py:FUNCTION``: loaded, and run so that its errors become one clear line."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from wastenot.core.errors import BadInputError, WastenotError, first_line
from wastenot.core.suggest import suggestion

FAKE = "fake:"
_NEEDS_DATA = ("DataDependentOutputException", "DynamicOutputShapeException")
"""What PyTorch raises where a step reads the values of fake tensors."""


def load_step(target: str) -> Callable[[], object]:
    """The function that runs one step.

    The file is imported as a module, with its folder in front of the import path; what it prints goes to stderr.

    Args:
        target: ``FILE.py:FUNCTION``; the function takes no arguments.

    Returns:
        The function; whatever it raises becomes a :class:`BadInputError`.

    Raises:
        BadInputError: there is no such file or function, or the file cannot be imported.
    """
    name, colon, function = target.rpartition(":")
    if not colon or not name or not function:
        raise BadInputError(f"'{target}': give a file and the function in it that runs one step: train.py:step")
    path = Path(name)
    if not path.is_file():
        raise BadInputError(f"{name}: no such file; give one: train.py:step")
    if path.suffix == ".py":
        _check_named(name, path, function)
    with user_code(target, path, "importing it"):
        module = _import(path)
    found = getattr(module, function, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise BadInputError(f"{name}: has no function '{function}'; {suggestion(function, known)}")

    def step() -> object:
        with user_code(target, path, "running it"):
            return found()

    return step


def _check_named(name: str, path: Path, function: str) -> None:
    """Refuse a function that the file defines nowhere, before the file runs: it may be a whole training."""
    source = path.read_text(encoding="utf-8", errors="replace")
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return  # importing it says where
    bound = {name for node in nodes for name in _bound_by(node)}
    if bound & {function, "*"}:
        return
    known = re.findall(r"^def (\w+)", source, re.MULTILINE)
    listed = suggestion(function, known) if known else "it defines none"
    raise BadInputError(
        f"{name}: has no function '{function}'; {listed}. Put one training step into a function without arguments, and what "
        "prepares it above; or in your loop: with wn.capture() as captured"
    )


def _bound_by(node: ast.AST) -> tuple[str, ...]:
    """Names that a node may define in its module, and texts that code may define them by."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.Name(id=name, ctx=ast.Store()) | ast.Constant(value=str(name)):
            return (name,)
        case ast.alias(name=name, asname=other):
            return (other or name.partition(".")[0],)
    return ()


@contextlib.contextmanager
def user_code(target: str, path: Path, doing: str) -> Iterator[None]:
    """Run a user's code: its output goes to stderr, and whatever it raises becomes one line with file and line number.

    Raises:
        BadInputError: the code raised something.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (KeyboardInterrupt, WastenotError):
        raise
    except (Exception, SystemExit) as error:
        where = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.resolve()]
        line = f" at {path}:{where[-1].lineno}" if where else ""
        if isinstance(error, SyntaxError) and error.lineno is not None:
            line = f" at {error.filename}:{error.lineno}"
        hint = ""
        if type(error).__name__ in _NEEDS_DATA:
            hint = "; tensors have no data here, so remove code that reads them, such as loss.item(), or use a real device"
        elif type(error).__name__ == "OutOfMemoryError":
            hint = "; capturing keeps more than a step: try --device fake:cuda, which takes no memory, or a smaller batch"
        raise BadInputError(f"{target}: {doing} raised {type(error).__name__}{line}: {first_line(error)}{hint}") from error


@contextlib.contextmanager
def default_device(name: str | None) -> Iterator[None]:
    """Create tensors on a device while the context is open, unless the code names another.

    Args:
        name: such as ``cuda:0`` or ``cpu``; ``fake:cuda`` for tensors without data, for which PyTorch picks the operations
            of that device, which it must see, but runs none; ``None`` changes nothing.

    Raises:
        BadInputError: PyTorch has no such device.
    """
    if name is None:
        yield
        return
    import torch

    fake, what = name.startswith(FAKE), name.removeprefix(FAKE)
    try:
        device = torch.device(what)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        what = "that device, whose operations are to be picked" if fake else "it"
        raise BadInputError(f"`device` {name}: PyTorch cannot use {what}: {first_line(error)}") from error
    before = torch.get_default_device()
    with contextlib.ExitStack() as stack:
        if fake:
            from wastenot.workloads.capturing.fake_device import without_data

            stack.enter_context(without_data())
        torch.set_default_device(device)
        try:
            yield
        finally:
            torch.set_default_device(None if before.type == "cpu" else before)


def _import(path: Path) -> ModuleType:
    resolved = path.resolve()
    name = resolved.stem if resolved.stem.isidentifier() and resolved.stem not in sys.modules else "captured_step"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(resolved.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
