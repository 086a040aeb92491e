"""One BLAS thread where many small matrices are factorised: more of them cost time there and save none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy  # noqa: F401  a limit reaches only libraries that are loaded


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit BLAS to one thread for a ``with`` block, or for a function decorated with ``@single_threaded()``.

    The limit that was in force returns afterwards. Entering takes about 0.1 ms, so it belongs around a whole fit.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
