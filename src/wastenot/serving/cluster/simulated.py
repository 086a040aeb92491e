"""A scenario that was run: its policies beside each other on each traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wastenot.core.result import HasDocument, HasPage
from wastenot.serving.cluster.outcome import Comparison
from wastenot.serving.cluster.scenario import Scenario


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedScenario(HasDocument, HasPage):
    """Policies for a cluster, beside each other.

    Attributes:
        scenario: as it was run.
        comparisons: of the policies, on each of its traffics.
        runs: how many there were.
        kept: how many of these the study held already.
    """

    drawn_by: ClassVar[str] = "wastenot.serving.page.cluster_page:scenario_page"
    told_by: ClassVar[str] = "wastenot.serving.documents:scenario_document"

    scenario: Scenario
    comparisons: tuple[Comparison, ...]
    runs: int
    kept: int = 0
