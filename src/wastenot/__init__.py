"""wastenot: finds the energy that a GPU wastes while it trains or serves an LLM, and plans the clocks that would save it.

    import wastenot as wn

    wn.sweep("gpt3-xl", device="sim:rtx-3080-ti", study="my.db", clocks=wn.Grid(core_step_mhz=315))
    plan = wn.plan("my.db", max_slowdown=0.02)
    checked = wn.validate(plan, study="my.db")
    wn.report("my.db", plan=checked, out="report.html")

The verbs take and return the types that the command line reads and writes. Names are imported when first used, so that
``import wastenot`` costs nothing; ``__init__.pyi`` lists them.
"""

from __future__ import annotations

from wastenot.core.loading import begin_loading

begin_loading()

import lazy_loader  # noqa: E402

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
