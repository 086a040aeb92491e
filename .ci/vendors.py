"""Fail where code outside a vendor's own package names a vendor: in a name, an import, or a text that decides something.

Sentences for people may: help, errors, sources of numbers. A text is no sentence if it has no space, or if code compares it,
looks it up or takes it apart.

    python .ci/vendors.py [FOLDER]      # src/wastenot by default
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from wastenot.core.vendors import VENDORS

SOURCE = Path(__file__).parents[1] / "src" / "wastenot"
NAMES = [name for each in VENDORS for name in (each.name, each.tool, *each.binding) if name] + ["nvml", "amdsmi", "rocm"]
IDS = [each.id_prefix for each in VENDORS if each.id_prefix]
WORDS = re.compile(rf"(?i:{'|'.join(map(re.escape, NAMES))})|\b(?:{'|'.join(map(re.escape, IDS))})(?![g-z])")
ALLOWED = {"core/vendors.py", *(f"devices/{each.name}/" for each in VENDORS)}
DECIDING = {
    "compile", "count", "endswith", "find", "findall", "finditer", "find_spec", "fullmatch", "get", "getattr", "hasattr",
    "import_module", "index", "match", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rpartition",
    "search", "setattr", "split", "startswith", "sub",
}  # fmt: skip
# Unions made for each node of the source would take longer than all else.
DECIDING_NODES = (ast.Compare, ast.MatchValue, ast.Subscript)
IMPORTS = (ast.Import, ast.ImportFrom)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def text_of(node: ast.AST) -> str | None:
    """The text that an expression is, with ``{}`` for what is known only when it runs; ``None`` where it is none."""
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join("{}" if isinstance(part, ast.FormattedValue) else text_of(part) or "" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else (left or "{}") + (right or "{}")
    return None


def names_of(node: ast.AST) -> Iterator[str]:
    """What a node names, other than in a text."""
    if isinstance(node, IMPORTS):
        yield getattr(node, "module", None) or ""
    for field in ("id", "attr", "name", "asname", "arg"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value


def decides(node: ast.AST) -> bool:
    """Whether texts directly in a node decide something."""
    called = node.func if isinstance(node, ast.Call) else None
    name = getattr(called, "attr", None) or getattr(called, "id", None)
    return isinstance(node, DECIDING_NODES) or name in DECIDING


def findings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and what is wrong on them."""
    nodes = list(ast.walk(tree))
    documents = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    bare = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    deciding = {
        id(inner)
        for node in nodes if decides(node)
        for child in ast.iter_child_nodes(node)
        for inner in (child, *getattr(child, "elts", ()))
    }  # fmt: skip
    for node in nodes:
        for name in names_of(node):
            if WORDS.search(name):
                yield getattr(node, "lineno", 0), f"names {name}"
        text = None if id(node) in documents | bare else text_of(node)
        if text and WORDS.search(text) and (not re.search(r"\s", text.strip()) or id(node) in deciding):
            yield getattr(node, "lineno", 0), f"decides by {text!r}"


def main(folder: Path) -> int:
    """Say what was found; the exit code."""
    found = 0
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder).as_posix()
        if place.startswith(tuple(ALLOWED)):
            continue
        for line, what in sorted(set(findings(ast.parse(path.read_text(encoding="utf-8"))))):
            print(f"{path}:{line}: {what}: what is of one vendor stands in devices/ or core/vendors.py")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE))
