"""``wastenot report``: a study, or a file of results, as a page."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.terminal.flags import flag_of
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    EnergiesOption,
    FiguresOption,
    JsonOption,
    PlanOptions,
    PriceOptions,
    SweepOptions,
    WorkloadOption,
)

if TYPE_CHECKING:
    from wastenot.cli.result_files import Kind

_NO_PAGES = (".pdf", ".png", ".svg", ".json", ".md", ".csv", ".db")


def report(
    goal: PlanOptions,
    price_options: PriceOptions,
    source: Annotated[
        str,
        argument(
            "A study, whose plan is computed and shown, or a results file: a plan, a run, a profile, ...", "FILE|STUDY"
        ),
    ],
    page: Annotated[Path | None, option("The page to write; default: FILE.html next to the file.", "FILE.html")] = None,
    study: Annotated[str | None, option("For a plan: the study it was made from.", "FILE|URL")] = None,
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    figures: FiguresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write any result as a self-contained page.

    Headline numbers, figures and tables; it needs no network.
    """
    from wastenot.cli.result_files import KINDS, is_study, kind_of
    from wastenot.terminal.option_rules import check_output

    if page is not None and page.suffix.lower() in _NO_PAGES:
        raise BadInputError(
            f"--page {page}: the page is HTML: give it a name ending in .html; for figures as SVG, PDF and PNG: --figures "
            f"DIR"
        )
    of_study = is_study(source)
    kind = "plan" if of_study else kind_of(Path(source))
    if "://" in source and page is None:
        raise BadInputError("--page: name the page to write, such as report.html")
    target = page or Path(source).with_suffix(".html")
    if page is None:
        check_output(target, "page")
    others = {"workload": workload, "energies": energies}
    if of_study:
        _refuse({"study": study}, source, "a study")
        measured = SweepOptions(source, workload, energies)
    elif kind == "plan":
        _refuse({**_given(goal), **others}, source, "a plan already")
        if study is None:
            raise BadInputError(f"{source}: a plan's page also shows the measurements: give their study (--study)")
        measured = SweepOptions(study)
    else:
        _refuse({**_given(goal), **others, "study": study, **_given(price_options)}, source, KINDS[kind].what)
        _report_of_a_file(kind, KINDS[kind], Path(source), target, figures, as_json=as_json)
        return
    plan = None if of_study else Path(source)
    _report_of_a_plan(measured, plan, goal, price_options, target, figures, as_json=as_json)


def _given(options: PlanOptions | PriceOptions) -> dict[str, object]:
    """Those of a group's options that are not at their default."""
    values = ((field.name, getattr(options, field.name), field.default) for field in fields(options))
    return {name: value for name, value, default in values if value != default}


def _refuse(given: dict[str, object], source: str, what: str) -> None:
    """What a result knows already cannot be asked for."""
    for name, value in given.items():
        if value is not None:
            raise BadInputError(f"{flag_of(name)}: has no effect on {source}, which is {what}; leave it out")


def _report_of_a_plan(
    measured: SweepOptions,
    plan: Path | None,
    goal: PlanOptions,
    price: PriceOptions,
    page: Path,
    figures: Path | None,
    *,
    as_json: bool,
) -> None:
    from wastenot.kernels.page.page import report as write_report
    from wastenot.planning.plan_file import read_plan
    from wastenot.terminal.output import print_json, say, typed_command

    made = goal.plan(measured.read(goal.granularity)) if plan is None else read_plan(plan)
    command = typed_command(measured.study)
    _, *files = write_report(measured.study, page, plan=plan or made, figures=figures, price=price.price(), command=command)
    say(f"{page}: page written")
    if figures is not None:
        say(f"{figures}: {counted(len(files), 'figure file')} written")
    if as_json:
        print_json("report", {"page": str(page), "figures": list(map(str, files)), "plan": made.document()})


def _report_of_a_file(kind: str, known: Kind, path: Path, page: Path, figures: Path | None, *, as_json: bool) -> None:
    from wastenot.terminal.output import print_json, typed_command
    from wastenot.terminal.written_page import write_page

    if known.reader is None:
        raise BadInputError(f"{path}: {known.what}, which has no page; 'wastenot show {path}' shows it")
    files = write_page(known.read(path).drawn(), page, figures, command=typed_command(str(path)))
    if as_json:
        written = {"page": str(page), "figures": list(map(str, files)), "plan": None}
        key = {"apply": "run", "pipeline": "pipeline"}.get(kind)
        shown = {} if key is None else {key: json.loads(path.read_text(encoding="utf-8-sig"))}
        print_json("report", written | shown)
