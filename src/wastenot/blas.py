"""One BLAS thread where many small matrices are factorised: more of them cost time there and save none."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy  # noqa: F401  the limit finds only libraries that are loaded


def single_threaded() -> AbstractContextManager[object]:
    """Limit BLAS to one thread inside a ``with`` block, or in a function that it decorates; the limit before returns after it."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")
