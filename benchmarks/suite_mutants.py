"""How many wrong lines the tests catch: random lines of the source are changed, and the tests run until one fails.

    python -m benchmarks.suite_mutants SEED COUNT -- COMMAND ...

The command runs once for each mutant, in a copy of the checkout, with ``{room}`` replaced by the folders and files of tests
that bear the name of the changed file or of its folder. Exit code 0 means that the mutant survived.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kept import ROOT

_COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
             ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}  # fmt: skip
_OPERATED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And}


def changes(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What can be changed in a file, and into what."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
            yield node, ast.Compare(node.left, [_COMPARED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATED and not _is_text(node):
            yield node, ast.BinOp(node.left, _OPERATED[type(node.op)](), node.right)
        elif isinstance(node, ast.BoolOp):
            yield node, ast.BoolOp(_OPERATED[type(node.op)](), node.values)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, ast.Constant(2 * node.value + 1)
        elif isinstance(node, ast.IfExp):
            yield node, ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
               for each in (node.left, node.right))  # fmt: skip


def mutants(seed: int, count: int) -> Iterator[tuple[Path, int, str, str]]:
    """Random ones: file, line, what stood there, and the whole changed file; each line of the source is as likely."""
    chance = random.Random(seed)
    files = sorted((ROOT / "src").rglob("*.py"))
    lengths = [len(file.read_text(encoding="utf-8").splitlines()) for file in files]
    while count:
        (file,) = chance.choices(files, lengths)
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        line = chance.randrange(len(lines)) + 1
        here = [each for each in changes(ast.parse(text)) if each[0].lineno == each[0].end_lineno == line]
        if not here:
            continue
        old, new = chance.choice(here)
        raw = lines[line - 1].encode()
        changed = raw[: old.col_offset] + f"({ast.unparse(new)})".encode() + raw[old.end_col_offset :]
        yield (
            file.relative_to(ROOT),
            line,
            f"{raw.decode().strip()}  ->  {changed.decode().strip()}",
            "".join([*lines[: line - 1], changed.decode(), *lines[line:]]),
        )
        count -= 1


def tests_of(root: Path, file: Path) -> list[str]:
    """The tests that bear the name of a source file, or of one of the two folders above it."""
    names = {file.stem, *file.parts[2:-1][-2:]}
    found = [each for each in sorted((root / "tests").rglob("*")) if each.name in names and each.is_dir()]
    found += [each for each in sorted((root / "tests").rglob("test_*.py")) if any(name in each.stem for name in names)]
    return [str(each.relative_to(root)) for each in found]


def main() -> None:
    """Run the command on each mutant, and count those that survive."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    survived = 0
    for file, line, what, text in mutants(given.seed, given.count):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "checkout"
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "site", "__pycache__"))
            (copy / file).write_text(text, encoding="utf-8")
            command = [part for each in given.command for part in (tests_of(copy, file) if each == "{room}" else [each])]
            path = os.pathsep.join([str(copy / "src"), str(copy)])
            ran = subprocess.run(
                command, cwd=copy, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
            )
        survived += ran.returncode == 0
        caught = next((each for each in ran.stdout.splitlines() if each.startswith(("FAILED", "ERROR"))), ran.stdout[-200:])
        print(f"{'survived' if ran.returncode == 0 else 'caught'}: {file}:{line}: {what}\n    {caught[:160]}", flush=True)
    print(f"{survived} of {given.count} survived")


if __name__ == "__main__":
    sys.exit(main())
