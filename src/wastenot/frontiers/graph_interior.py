"""The relaxation of a graph by an interior-point method (Mehrotra's predictor-corrector, SIAM J. Optimization 2, 1992).

The linear program. Part i starts at s_i and ends at e_i; segment g of its lower hull, ℓ_g seconds long, is used for x_g of
them and costs c_g < 0 a second. Each inequality has a slack u ≥ 0 (``unused``) and a multiplier p ≥ 0 (``price``, in watts):

    minimise  Σ c_g x_g                        over events y = (s, e, w) and 0 ≤ x ≤ ℓ
    part i    e_i − s_i − Σ x_g(i) − base_i       = u        base_i: its shortest time
    edge i→j  s_j − e_i − delay_ij                = u
    last i    w − e_i                             = u        only where ending early saves energy: w is the end of all,
    whole     deadline − x_end − w                = u        and x_end one more segment, with c_end = −end_w

or A y − B x − b = u, where no row of A has more than one +1 and one −1: A is the incidence matrix of a graph of events.
The Lagrangian's gradient vanishes where Aᵀp = 0 (prices are a flow that is conserved at every event; ``unbalanced``) and
c + Bᵀp − l + h = 0 (``skewed``; l and h are the multipliers of x ≥ 0 and x ≤ ℓ). Complementarity wants u p, x l and (ℓ − x)
h to be 0; the method drives all of them down together, to a common target that shrinks (``aim``).

A Newton step. dx, du, dl and dh are eliminated by hand, which leaves

    (Aᵀ K⁻¹ A) dy = Aᵀ K⁻¹ r + Aᵀp        K = u / p + B Θ⁻¹ Bᵀ, diagonal        Θ = l / x + h / (ℓ − x)

a graph Laplacian with conductances 1 / K: a tight constraint conducts, a slack one (large u, small p) hardly does, and
neither does a part with a segment that is used in part, which gives way like a spring (hence ``spring``, ``stiffness``);
:mod:`wastenot.frontiers.graph_laplacian` factorises it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from wastenot.core.arrays import FloatArray
from wastenot.frontiers.graph_laplacian import Events, Laplacian, Rows, summed
from wastenot.frontiers.graph_relaxation import GraphProblem, Relaxed, Segments, flow_bound

_MOST_ITERATIONS = 100
"""Newton steps. Random pipelines of 48 to 384 parts, as the tests have them, take 10 to 35: most where the deadline is the
least time. To stop here is no error: the bound of what was found is valid (:func:`flow_bound`), only looser."""

_TOLERANCE = 1e-7  # of the cost, within which it is known when the steps end
_STEP = 0.995
"""Fraction of the way to the nearest bound that a step may go. At 1 a variable would become 0 and its complementarity
product could not be centred again; values of 0.9 to 1 are usual (Nocedal and Wright, *Numerical Optimization*, section
14.2)."""

_STIFFEST = 1e-60
"""Floor of ``spring``, so that conductances and their products (1e120 at most) stay finite."""


@dataclass(eq=False)
class _Point:
    """An iterate: y, u, p, x, l and h of the program above. All but the events stay above 0."""

    events: Events
    unused: Rows
    price: Rows
    used: FloatArray
    low: FloatArray
    high: FloatArray


class InteriorPoint:
    """The relaxation of a graph at a deadline.

    Args:
        laplacian: of the graph.
        problem: the graph and its deadline.
    """

    def __init__(self, laplacian: Laplacian, problem: GraphProblem) -> None:
        self.laplacian, self.problem, self.dag = laplacian, problem, problem.dag
        self.segments = Segments.of(problem)
        self.base = problem.table.time_s[problem.klass, 0]
        # So that a part takes 1 and a segment's rate is −1 on average: tolerances and the first point then fit any graph.
        self.unit_s = float(self.base.mean())
        self.unit_j = float(np.abs(self.segments.rate).mean()) * self.unit_s if len(self.segments.rate) else 1.0
        length = self.segments.length / self.unit_s
        rate = self.segments.rate * (self.unit_s / self.unit_j)
        if laplacian.ends_early:  # the time that is saved at the end is one more segment, of a constraint of its own
            length = np.concatenate([length, [problem.end_s / self.unit_s]])
            rate = np.concatenate([rate, [-problem.end_w * self.unit_s / self.unit_j]])
        self.length, self.rate = length, rate
        self.deadline = problem.within_s / self.unit_s
        self.delay = self.dag.delay_s / self.unit_s

    # ---- the constraints ---------------------------------------------------------------------------------------

    def _moved(self, events: Events) -> Rows:
        """The left sides of all constraints: A y."""
        dag, last = self.dag, self.dag.without_later
        early = self.laplacian.ends_early
        return Rows(
            events.end - events.start,
            events.start[dag.later] - events.end[dag.earlier],
            events.whole - events.end[last] if early else np.zeros(0),
            np.array([-events.whole]) if early else np.zeros(0),
        )

    def _gathered(self, price: Rows) -> Events:
        """Aᵀp: the flow that each event gains, 0 at those that are fixed."""
        dag, parts = self.dag, len(self.dag)
        start = summed(dag.later, price.edge, parts) - price.part
        end = price.part - summed(dag.earlier, price.edge, parts)
        whole = 0.0
        if self.laplacian.ends_early:
            end[dag.without_later] -= price.last
            whole = float(price.last.sum() - price.whole.sum())
        else:
            end[dag.without_later] = 0.0
        start[~self.laplacian.waits] = 0.0
        return Events(start, end, whole)

    def _added(self, by_segment: FloatArray) -> Rows:
        """Sums over the segments of each constraint: B x."""
        dag, own = self.dag, len(self.segments.owner)
        return Rows(
            summed(self.segments.owner, by_segment[:own], len(dag)),
            np.zeros(len(dag.earlier)),
            np.zeros(len(dag.without_later) if self.laplacian.ends_early else 0),
            by_segment[own:],
        )

    def _spread(self, rows: Rows) -> FloatArray:
        """Bᵀp: the price of each segment's constraint."""
        return np.concatenate([rows.part[self.segments.owner], rows.whole])

    @property
    def _limit(self) -> Rows:
        """The right sides: b."""
        early = self.laplacian.ends_early
        dag = self.dag
        return Rows(
            self.base / self.unit_s,
            self.delay,
            np.zeros(len(dag.without_later) if early else 0),
            np.full(1 if early else 0, -self.deadline),
        )

    # ---- iterations --------------------------------------------------------------------------------------------

    def _first(self) -> _Point:
        """A point well inside the bounds, not feasible: all parts at their fastest, stretched to the deadline.

        Half of each segment is used, and all prices are the median rate, about what a second will turn out to be worth.
        Slacks and multipliers have a floor, a tenth of a part's mean time and of that price, as steps from close to a bound
        are short. The halves and tenths were chosen by hand.
        """
        dag, base = self.dag, self.base / self.unit_s
        start = dag.earliest_s(self.base) / self.unit_s
        end = start + base
        stretch = self.deadline / float(end.max())
        start, end = start * stretch, end * stretch
        if not self.laplacian.ends_early:
            end[dag.without_later] = self.deadline
        events = Events(np.where(self.laplacian.waits, start, 0.0), end, self.deadline)
        used = 0.5 * self.length
        slack = [
            np.maximum(moved - limit - added, 0.1)
            for moved, limit, added in zip(self._moved(events), self._limit, self._added(used), strict=True)
        ]
        price = float(np.median(-self.rate)) if len(self.rate) else 1.0
        prices = [np.full(len(each), price) for each in slack]
        reduced = self.rate + price
        return _Point(
            events, Rows(*slack), Rows(*prices), used,
            np.maximum(reduced, 0.0) + 0.1 * price, np.maximum(-reduced, 0.0) + 0.1 * price,
        )  # fmt: skip

    def solve(self) -> Relaxed:
        """The relaxation, with a bound that is valid however far the steps came."""
        at = self._first()
        count = sum(map(len, at.price)) + 2 * len(self.length)
        for _ in range(_MOST_ITERATIONS):
            room = self.length - at.used
            gap = sum(float(u @ p) for u, p in at.unused.map(at.price)) + float(at.used @ at.low + room @ at.high)
            wrong = [
                moved - limit - added - unused
                for moved, limit, added, unused in zip(
                    self._moved(at.events), self._limit, self._added(at.used), at.unused, strict=True
                )
            ]
            unbalanced = self._gathered(at.price)
            skewed = self.rate + self._spread(at.price) - at.low + at.high
            cost = abs(float(self.rate @ at.used)) + 1e-9
            far = max(float(np.abs(each).max(initial=0.0)) for each in wrong) / self.deadline
            off = max(float(np.abs(unbalanced.start).max()), float(np.abs(unbalanced.end).max()))
            # A flow is made conserved exactly in :meth:`_result`; times only guide the rounding to real ways.
            if gap <= _TOLERANCE * cost and far <= 1e-9 and off <= 1e-6 * max(float(at.price.part.max()), 1e-9):
                break
            try:
                following = self._stepped(at, wrong, unbalanced, skewed, room, gap / count)
            except LinAlgError:
                break
            if not all(np.isfinite(each).all() for each in (*following.price, following.used, *following.events)):
                break
            at = following
        return self._result(at)

    def _stepped(
        self, at: _Point, wrong: list[FloatArray], unbalanced: Events, skewed: FloatArray, room: FloatArray, mean: float
    ) -> _Point:
        """One predictor-corrector step: two solves with one factorisation.

        The predictor aims at complementarity products of 0. How far it gets decides the corrector's target: the mean product
        times (mean after the predictor / mean now)³, Mehrotra's heuristic, at least 1e-6 of it. The corrector also takes off
        the products of the predictor's changes (du dp, dx dl, dx dh), which Newton's linearisation leaves out.
        """
        stiffness = at.low / at.used + at.high / room
        softness = self._added(1.0 / stiffness)
        spring = Rows(*(soft + u / p for soft, u, p in zip(softness, at.unused, at.price, strict=True)))
        factor = self.laplacian.factorised(Rows(*(1.0 / np.maximum(each, _STIFFEST) for each in spring)))

        def step(
            rows: Rows, low: FloatArray, high: FloatArray
        ) -> tuple[Events, Rows, Rows, FloatArray, FloatArray, FloatArray]:
            """The Newton step that changes u p by ``rows``, x l by ``low`` and (ℓ − x) h by ``high``, to first order."""
            tilted = -skewed + low / at.used - high / room
            right = [
                -err + add + r / p
                for err, add, r, p in zip(wrong, self._added(tilted / stiffness), rows, at.price, strict=True)
            ]
            pushed = self._gathered(Rows(*(r / k for r, k in zip(right, spring, strict=True))))
            events = factor.solve(
                Events(pushed.start + unbalanced.start, pushed.end + unbalanced.end, pushed.whole + unbalanced.whole)
            )
            price = Rows(*((r - m) / k for r, m, k in zip(right, self._moved(events), spring, strict=True)))
            used = (tilted - self._spread(price)) / stiffness
            unused = Rows(*((r - u * dp) / p for r, u, dp, p in zip(rows, at.unused, price, at.price, strict=True)))
            return events, unused, price, used, (low - at.low * used) / at.used, (high + at.high * used) / room

        rows = Rows(*(-u * p for u, p in at.unused.map(at.price)))
        _, d_unused, d_price, d_used, d_low, d_high = step(rows, -at.used * at.low, -room * at.high)
        primal = _longest([*at.unused, at.used, room], [*d_unused, d_used, -d_used])
        dual = _longest([*at.price, at.low, at.high], [*d_price, d_low, d_high])
        after = sum(
            float((u + primal * du) @ (p + dual * dp))
            for u, du, p, dp in zip(at.unused, d_unused, at.price, d_price, strict=True)
        )
        after += float((at.used + primal * d_used) @ (at.low + dual * d_low))
        after += float((room - primal * d_used) @ (at.high + dual * d_high))
        count = sum(map(len, at.price)) + 2 * len(self.length)
        aim = mean * min(1.0, max((after / count / mean) ** 3, 1e-6))
        rows = Rows(*(aim - u * p - du * dp for u, p, du, dp in zip(at.unused, at.price, d_unused, d_price, strict=True)))
        events, d_unused, d_price, d_used, d_low, d_high = step(
            rows, aim - at.used * at.low - d_used * d_low, aim - room * at.high + d_used * d_high
        )
        primal = min(1.0, _STEP * _longest([*at.unused, at.used, room], [*d_unused, d_used, -d_used]))
        dual = min(1.0, _STEP * _longest([*at.price, at.low, at.high], [*d_price, d_low, d_high]))
        return _Point(
            Events(
                at.events.start + primal * events.start,
                at.events.end + primal * events.end,
                at.events.whole + primal * events.whole,
            ),
            Rows(*(u + primal * du for u, du in at.unused.map(d_unused))),
            Rows(*(p + dual * dp for p, dp in at.price.map(d_price))),
            at.used + primal * d_used,
            at.low + dual * d_low,
            at.high + dual * d_high,
        )

    def _result(self, at: _Point) -> Relaxed:
        """The solution, with a bound that holds however far the iteration got: its prices, made a conserved flow."""
        problem, dag = self.problem, self.dag
        watts = self.unit_j / self.unit_s
        last = at.price.last if self.laplacian.ends_early else at.price.part[dag.without_later]
        through, edge_w = dag.conserved(at.price.edge * watts, last * watts)
        used = self._added(at.used)
        saved_s = float(used.whole.sum()) * self.unit_s
        return Relaxed(self.base + used.part * self.unit_s, saved_s, flow_bound(problem, through, edge_w), edge_w, through)


def _longest(values: list[FloatArray], changes: list[FloatArray]) -> float:
    """The longest step that leaves all values positive, at most 1 / 0.995."""
    longest = 1.0 / _STEP
    for value, change in zip(values, changes, strict=True):
        falling = change < 0.0
        if falling.any():
            longest = min(longest, float((value[falling] / -change[falling]).min()))
    return longest
