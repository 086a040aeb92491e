"""What a capture on the CPU says of the same step on CUDA: most shapes and FLOPs, but not which operations run."""

from __future__ import annotations

from wastenot.workloads.kernel import KernelSpec, Workload

_GROUPED = ("aten._foreach_", "aten._fused_")
_CPU_ONLY = ("_for_cpu", "mkldnn", "onednn")


def differences_from_cuda(workload: Workload) -> tuple[str, ...]:
    """How the step differs from the same one on CUDA, for a person to read; nothing where it was not captured on the CPU.

    PyTorch picks operations by the device of their tensors. What it would pick is known only where it runs on CUDA, so this
    names what is seen to differ, without guessing what stands in its place.

    Args:
        workload: captured.
    """
    if workload.captured_on != "cpu":
        return ()
    notes = ["captured on the CPU, where PyTorch runs different operations from CUDA; capture on the GPU: --device cuda:0"]
    of_optimizer = [kernel for kernel in workload.kernels if kernel.pass_name == "optimizer"]
    if of_optimizer and not any(_operation(kernel).startswith(_GROUPED) for kernel in of_optimizer):
        calls = sum(kernel.count for kernel in of_optimizer)
        notes.append(
            f"the optimizer ran {calls:,} operations, tensor by tensor, as is the default on the CPU; on CUDA the default "
            "is to update all tensors together (foreach), or in one operation with fused=True"
        )
    own = [kernel for kernel in workload.kernels if any(part in _operation(kernel) for part in _CPU_ONLY)]
    attention = [kernel for kernel in own if "attention" in kernel.op]
    if attention:
        notes.append(
            f"{_named(attention)}: CPU attention, which no GPU runs; CUDA has flash, cuDNN, memory-efficient "
            "and unfused attention, and chooses one by type, shape and card"
        )
    others = [kernel for kernel in own if kernel not in attention]
    if others:
        notes.append(f"{_named(others)}: operations that only the CPU has")
    if any(kernel.op == "gemm" and kernel.element_bytes == 4 for kernel in workload.kernels):
        notes.append(
            "matrix products ran in float32; torch.autocast('cuda', ...) does nothing on the CPU, so code that relies "
            "on it ran without it"
        )
    return tuple(notes)


def _operation(kernel: KernelSpec) -> str:
    return "" if kernel.call is None else kernel.call.op


def _named(kernels: list[KernelSpec]) -> str:
    return ", ".join(dict.fromkeys(_operation(kernel).rpartition(".")[0] for kernel in kernels))
