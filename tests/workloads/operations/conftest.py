"""What these tests run PyTorch with."""

from __future__ import annotations

from testbed.torch_threads import one_torch_thread

__all__ = ["one_torch_thread"]
