"""``wastenot serve simulate``: policies on one engine and a trace, or on a scenario's cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from wastenot.core.errors import BadInputError
from wastenot.serving.cli.simulate_cluster import ScenarioOptions, simulate_cluster
from wastenot.serving.cli.simulate_engine import EngineOptions, simulate_engine
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import FiguresOption, JsonOption, OutOption, PageOption


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
    from wastenot.core.files import write_text
    from wastenot.terminal.output import console, document_of, json_text, say, typed_command
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
    if source.suffix == ".toml":
        found = simulate_cluster(source, scenario_options, policy)
    else:
        found = simulate_engine(source, engine_options, policy)
    if page is not None or figures is not None:
        write_page(found.page(), page, figures, command=typed_command(str(source)))
    document = json_text(document_of(found.kind, found.document))
    if out is not None:
        write_text(out, document + "\n")
        say(f"{out}: written")
    if as_json:
        print(document)
    else:
        console().print(found.text())
