"""The busiest minute of policies on a trace of Azure's."""

from __future__ import annotations

from benchmarks.kept import BESIDE, DATA
from docs.make.page import Page, figure

SERVING = DATA / "serving"


def minute() -> bytes:
    """The busiest minute of ten at half load."""
    from wastenot.serving.model.profile_file import read_engine
    from wastenot.serving.model.steering import steer
    from wastenot.serving.model.traces import read_trace
    from wastenot.serving.page.steer_page import steer_page

    engine = read_engine(SERVING / "llama-8b-sim-h200.json").engine()
    found = steer(
        engine,
        read_trace(BESIDE / "serving" / "AzureLLMInferenceTrace_conv.csv").requests.part(600.0, 1200.0),
        load=0.5,
        policies=("price",),
    )
    return figure(steer_page(found).export, "serving-minute")


PAGES = (Page("simulate", pictures={"steer-minute.png": minute}),)
