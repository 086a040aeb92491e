"""PyTorch on one thread: small tensors take longer to share out than to compute, and idle threads wait by spinning."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> Iterator[None]:
    """For the tests of the folders whose conftest imports this."""
    try:
        import torch
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
