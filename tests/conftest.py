"""What tests of several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest

_SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured sweeps, which lies beside the checkout and is not part of it."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"no measured data at {_SHARED_DATA}")
    return _SHARED_DATA
