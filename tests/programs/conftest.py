"""What tests of programs share."""

from types import ModuleType

import pytest


@pytest.fixture
def lightning() -> ModuleType:
    """Lightning, under either of its names; a test of it is skipped where neither is installed."""
    try:
        import lightning.pytorch as found
    except ImportError:
        found = pytest.importorskip("pytorch_lightning")
    return found
