"""``wastenot serve simulate``: policies on one engine and a trace, or on a scenario's cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from wastenot.core.errors import BadInputError
from wastenot.serving.cli.simulate_cluster import ScenarioOptions, scenario_text, simulate_cluster
from wastenot.serving.cli.simulate_engine import EngineOptions, simulate_engine, steering_text
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import AssumedClocksOption, FiguresOption, JsonOption, OutOption, PageOption

if TYPE_CHECKING:
    from wastenot.serving.cluster.simulated import SimulatedScenario
    from wastenot.serving.model.steering import Steering


def simulate(
    engine_options: EngineOptions,
    scenario_options: ScenarioOptions,
    source: Annotated[
        Path | None,
        argument(
            "An engine, as 'wastenot serve profile --out' writes it, or a cluster with its traffic and policies.",
            "[ENGINE.json|SCENARIO.toml]",
        ),
    ] = None,
    example: Annotated[bool, option("Print a scenario with comments, and exit.")] = False,
    policy: Annotated[
        list[str] | None, option("Only these policies; may be repeated. 'oracle' takes minutes.", "NAME")
    ] = None,
    scheduler: Annotated[
        Literal["fcfs", "priority", "deadline"] | None,
        option(
            "Order of requests in an engine: first come, first served (fcfs, the default), vLLM's priority by the deadline "
            "of the first token, or prefill by deadline, which no stock engine offers: what that adds is shown."
        ),
    ] = None,
    assumed_clocks: AssumedClocksOption = False,
    out: OutOption = None,
    page: PageOption = None,
    figures: FiguresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate policies that set the clocks of LLM servers.

    One engine steps through the requests of a trace under each policy; a scenario has a cluster, traffic and policies of its
    own, and its runs are kept as they end, so that what was interrupted resumes. Shows what each policy saves beside the
    share of requests that meet their deadlines. Nothing is run or set on a GPU.
    """
    from wastenot.core.values import json_text
    from wastenot.terminal.output import console, say, typed_command
    from wastenot.terminal.written_page import write_page

    if example:
        from wastenot.serving.cluster.scenario import example as scenario_example

        if source is not None:
            raise BadInputError("--example: prints a scenario and reads none; leave out the file")
        print(scenario_example(), end="")
        return
    if source is None:
        raise BadInputError(
            "give an engine (ENGINE.json --trace FILE) or a scenario; 'wastenot serve simulate --example > scenario.toml' "
            "writes one"
        )
    found: Steering | SimulatedScenario
    if source.suffix == ".toml":
        found = scenario = simulate_cluster(
            source, scenario_options, policy, assumed_clocks=assumed_clocks, scheduler=scheduler
        )
        text = partial(scenario_text, scenario)
    else:
        found = steering = simulate_engine(
            source, engine_options, policy, assumed_clocks=assumed_clocks, scheduler=scheduler
        )
        text = partial(steering_text, steering)
    if page is not None or figures is not None:
        write_page(found.drawn(), page, figures, command=typed_command(str(source)))
    if out is not None:
        found.write(out)
        say(f"{out}: written")
    if as_json:
        print(json_text(found.document()))
    else:
        console().print(text())
