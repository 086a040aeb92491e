"""What a replay of servers' histories says in words, on its page and in a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from wastenot.core.origin import Origin
from wastenot.core.wording import counted, sentence
from wastenot.pages.formatting import SPACE, duration, percent, quantity
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Listed, Table, listing
from wastenot.serving.control.history import plain
from wastenot.serving.control.replay import Replay, ReplayedServer

_RATHER_OFF = 0.2
"""Of the measured time between tokens, from which on the profile is said to be of another engine."""


def origin_of(found: Replay) -> Origin:
    """A profile of a simulated device is simulated; one that was measured foretells what was not."""
    return "simulated" if found.evidence == "simulated" else "forecast"


def effect_text(found: Replay) -> str:
    """The headline."""
    return f"serve control would have saved {percent(found.saved, 1)} of the energy"


def of_servers(found: Replay) -> str:
    """How many servers it was replayed on."""
    return counted(len(found.servers), "server")


def amounts(found: Replay) -> tuple[str, str]:
    """What is saved, and of what: ``67.7 Wh``, ``334 Wh``."""
    total_j = sum(each.default_energy_j for each in found.servers)
    saved_j = total_j - sum(each.energy_j for each in found.servers)
    return _energy(saved_j, total_j), _energy(total_j, total_j)


def energies_per_token_j(found: Replay) -> tuple[float, float] | None:
    """At the default clocks, and as controlled; ``None`` where no token was generated."""
    tokens = sum(each.output_tokens for each in found.servers if each.tbt_s is not None)
    both_j = [sum(getattr(each, name) for each in found.servers) for name in ("default_energy_j", "energy_j")]
    return (both_j[0] / tokens, both_j[1] / tokens) if tokens else None


def _energy(joules: float, like_j: float) -> str:
    """An energy, in the unit of another."""
    return f"{joules / 3.6e6:.3g} kWh" if like_j >= 3.6e6 else f"{joules / 3.6e3:.3g} Wh"


def verdict_text(found: Replay) -> str:
    """What the headline rests on."""
    hours = "hour" if found.hours == 1.0 else f"{found.hours:g}{SPACE}hours"
    when = f"in the last {hours}, compared with the default clocks"
    return f"{when}; the load is what Prometheus recorded, the energies are predicted by the profile. No clock was set"


def added(server: ReplayedServer) -> float | None:
    """To the time between tokens, as a fraction of it."""
    return None if server.tbt_s is None or not server.default_tbt_s else server.tbt_s / server.default_tbt_s - 1.0


def clock_text(server: ReplayedServer) -> str:
    """Where most of the time was spent."""
    name, seconds = max(server.clocks.items(), key=lambda each: each[1])
    share = f" ({100.0 * seconds / server.covered_s:.0f} %)"
    return ("default" if name == "0" else f"{float(name):,.0f} MHz") + share


def panels(found: Replay) -> tuple[Panel, Panel, Panel]:
    """What is saved, what it costs each token, and whether deadlines would be met."""
    servers, deadlines = found.servers, found.deadlines
    tokens = sum(each.output_tokens for each in servers if each.tbt_s is not None)
    covered_s = sum(each.covered_s for each in servers)
    kept = sum(each.kept_s for each in servers) / covered_s
    token_j = energies_per_token_j(found)
    saved, total = amounts(found)
    saving = Panel(
        "Energy", f"{saved} saved", f"of {total} at the default clocks.",
        lines=(
            *([] if token_j is None else [Line("Energy per token", " instead of ".join(
                quantity(each, "J", 3) for each in reversed(token_j)))]),
            Line("Tokens generated", f"{tokens:,.0f}"),
            Line("Time counted", f"{duration(covered_s)} of {duration(3600.0 * found.hours * len(servers))}"),
        ),
    )  # fmt: skip
    if tokens:
        token_s, default_s = (
            sum((getattr(each, name) or 0.0) * each.output_tokens for each in servers) / tokens
            for name in ("tbt_s", "default_tbt_s")
        )
        change = percent(token_s / default_s - 1.0, 1, sign=True)
        means = f"{quantity(token_s, 's', 3)} instead of {quantity(default_s, 's', 3)} on average."
    else:
        change, means = "not known", "no token was generated in the time that is counted."
    slower = Panel("Time between tokens", change, means, lines=_time_lines(servers))
    ttft = " / ".join(quantity(each, "s", 3) for each in deadlines.ttft_s)
    met = Panel(
        "Deadlines met", f"{percent(kept, 1)} of the time",
        f"when {percent(deadlines.share, 0)} of first tokens, and of the gaps between tokens, would have been in time.",
        lines=(
            Line(f"Deadline of the first token{', by prompt length' * (len(deadlines.ttft_s) > 1)}", ttft),
            Line("Deadline between tokens", quantity(deadlines.tbt_s, "s", 3)),
            Line("Headroom left of each", percent(found.headroom, 0)),
        ),
    )  # fmt: skip
    return saving, slower, met


def _time_lines(servers: Sequence[ReplayedServer]) -> tuple[Line, ...]:
    changes = Line("Clock changes", f"{sum(len(each.changes) for each in servers):,}")
    if len(servers) > 1:
        return (changes,)
    (server,) = servers
    measured = server.measured_tbt_s
    return (
        *([] if measured is None else [Line("Median that the server measured", quantity(measured, "s", 3))]),
        Line("Clock most of the time", clock_text(server)),
        changes,
    )


def servers_table(found: Replay) -> Table:
    """Each server in a row."""
    columns: tuple[Listed[ReplayedServer], ...] = (
        Listed("Server", lambda each: plain(each.instance), numeric=False),
        Listed("Saved", lambda each: each.saved, lambda value: percent(value, 1)),
        Listed("Time between tokens", lambda each: each.tbt_s, lambda value: quantity(value, "s", 3)),
        Listed("Added", added, lambda value: percent(value, 1, sign=True)),
        Listed("Deadlines met", lambda each: each.kept_s / each.covered_s, lambda value: percent(value, 1)),
        Listed("Clock most of the time", clock_text, numeric=False),
        Listed("Clock changes", lambda each: float(len(each.changes)), lambda value: f"{value:,.0f}"),
        Listed("Counted", lambda each: each.covered_s, duration),
    )
    return listing("Servers", found.servers, columns)


def next_step(found: Replay) -> Next:
    """How to have the servers' clocks chosen live, or the profile corrected first."""
    engine = shlex.quote(found.engine) if found.engine else "ENGINE.json"
    if any(map(_is_off, found.servers)):
        return Next(
            "The profile's times are not those of this server: correct it by the server's own steps, which it records or "
            "publishes, and replay again",
            (f"wastenot serve profile {engine} --from STEPS.jsonl --out corrected.json",),
        )
    urls = [f"http://{plain(each.instance)}" for each in found.servers]
    instances = " ".join(f"--instance {shlex.quote(each)}=DEVICE" for each in urls)
    return Next(
        "Replace DEVICE by the server's GPU, such as nvidia:0, and watch which clocks would be set live; with "
        "--allow-clock-control they are set",
        (f"wastenot serve control {engine} {instances}",),
    )


def notes(found: Replay) -> list[str]:
    """How far to trust it, in a terminal."""
    return [
        *(_of(found, each, note) for each in found.servers for note in (_seen(each), *_measured(each), *_warnings(each))),
        *_caveats(),
    ]


def warnings(found: Replay) -> list[str]:
    """What is odd about these servers and their histories, in sentences."""
    several = len(found.servers) > 1
    texts = [
        _of(found, each, note)
        for each in found.servers
        for note in (*(_measured(each) if _is_off(each) else ()), *_warnings(each))
    ]
    return [f"{each}." if several else sentence(each) for each in texts]  # names of servers begin as they do


def cannot_tell(found: Replay) -> list[str]:
    """What no history tells, in sentences."""
    slowest = max(found.servers, key=lambda each: each.scrape_s)
    return [sentence(each) for each in (_seen(slowest, count=False), *_caveats())]


def _of(found: Replay, server: ReplayedServer, note: str) -> str:
    return f"{plain(server.instance)}: {note}" if len(found.servers) > 1 else note


def _seen(server: ReplayedServer, *, count: bool = True) -> str:
    scrapes = f"{counted(server.scrapes, 'scrape')}, one" if count else "the server was scraped once"
    return (
        f"{scrapes} every {duration(server.scrape_s)}: bursts shorter than that are not seen, and the live controller, "
        "which reads once a second, follows the load sooner"
    )


def _off(server: ReplayedServer) -> float | None:
    """How far the profile's time between tokens is from the measured one, as a fraction of it."""
    if server.measured_tbt_s is None or server.default_tbt_s is None:
        return None
    return server.default_tbt_s / server.measured_tbt_s - 1.0


def _is_off(server: ReplayedServer) -> bool:
    return abs(_off(server) or 0.0) > _RATHER_OFF


def _measured(server: ReplayedServer) -> Iterator[str]:
    """What the server measured beside what the profile says."""
    off = _off(server)
    if off is None:
        return
    said = f"the server measured a median of {1e3 * (server.measured_tbt_s or 0.0):.3g} ms between tokens; the profile says "
    said += f"{1e3 * (server.default_tbt_s or 0.0):.3g} ms on average at the default clocks"
    if _is_off(server):
        more = "more" if off > 0 else "less"
        said += f", {percent(abs(off), 0)} {more}: correct it by the server's own steps (serve profile --from)"
    yield said


def _warnings(server: ReplayedServer) -> Iterator[str]:
    odd = [
        (server.gaps, "gap without scrapes", "gaps without scrapes"),
        (server.restarts, "restart", "restarts"),
        (server.unreadable, "scrape with values that cannot be", "scrapes with values that cannot be"),
    ]
    left = [f"{count:,} {one if count == 1 else more}" for count, one, more in odd if count]
    if left:
        yield f"not counted: {', '.join(left)}"
    if server.steps_up:
        yield (
            "measured latencies missed deadlines at the clocks that were set then, so up to "
            f"{counted(server.steps_up, 'clock step')} were added to the profile's choice"
        )


def _caveats() -> Iterator[str]:
    yield (
        "energies are the profile's, not measured, for the rate of tokens in the history; latencies in the history are "
        "those at the clocks that were set then, taken to be the default ones"
    )
    yield "prompt tokens from a prefix cache count as computed"
