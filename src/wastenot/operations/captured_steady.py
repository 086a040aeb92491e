"""Keeping in-place operations replayable: run millions of times on the same memory, values must not die out or overflow.

- A product or quotient in place is given factors of magnitude one, with the sign that they had: the work and the memory
  traffic are the same, and the magnitudes stay what they are.
- A sum in place grows by the same addend each time and stops growing where the addend falls below the last digit
  (2^8 times it in bfloat16, 2^24 in float32): finite, never zero. So do moments and weights of optimizers.
- Roots, hyperbolic tangents and the like in place go to their fixed point, and are left to it; exponentials and powers in
  place, which no training step known to us runs, are left as they are.
"""

from __future__ import annotations

from typing import Any

_PRODUCTS = ("mul_", "div_", "multiply_", "divide_", "_foreach_mul_", "_foreach_div_")


def steadied(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation, changed where running it in place again and again would end in zeros or infinities.

    Args:
        operation: such as ``aten.mul_.Tensor``.
        arguments: see :mod:`wastenot.operations.signature`; not changed.
    """
    name = operation.split(".")[1]
    args = arguments["args"]
    if name not in _PRODUCTS or len(args) < 2:
        return arguments
    tensors = [dict(tensor) for tensor in arguments["tensors"]]
    factor = _of_magnitude_one(args[1], tensors)
    return arguments | {"args": [args[0], factor, *args[2:]], "tensors": tensors}


def _of_magnitude_one(factor: Any, tensors: list[dict[str, Any]]) -> Any:
    if isinstance(factor, list):
        return [_of_magnitude_one(part, tensors) for part in factor]
    if isinstance(factor, dict) and "tensor" in factor:
        tensor = tensors[factor["tensor"]]
        if tensor.get("values", {}).keys() & {"like", "value"}:
            tensor["values"] = _signs(tensor["values"])
        return factor
    if isinstance(factor, (int, float)) and not isinstance(factor, bool):
        return type(factor)(-1 if factor < 0 else 1)
    if isinstance(factor, dict) and "float" in factor:
        return 1.0
    return factor


def _signs(values: dict[str, Any]) -> dict[str, Any]:
    value = values.get("value")
    if value is None:
        return {"like": "signs"}
    if isinstance(value, bool):
        return values
    return {"value": -1 if isinstance(value, (int, float)) and value < 0 else 1}
