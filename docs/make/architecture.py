"""The picture of the rooms.

Each floor is a layer of ``[tool.importlinter]`` in pyproject.toml: a room imports only from floors below its own.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from docs.make.page import Page

WIDTH, MARGIN, GAP, BOX_HEIGHT = 1180, 20, 12, 58

# From the top floor down; of each room what it holds, and the group that colours it.
FLOORS: tuple[dict[str, tuple[str, str]], ...] = (
    {"cli": ("the program wastenot: mounts every subject's commands", "show")},
    {"programs": ("wn.apply, trainers' callbacks, the hook at the start of a Python", "run")},
    {
        "kernels": ("search, validate, forecast, natural clocks", "decide"),
        "pipelines": ("schedules, clocks for each instruction", "decide"),
        "jobs": ("training that comes back", "decide"),
        "serving": ("engines, clusters, live servers", "decide"),
    },
    {"control": ("a setting at work in someone's program: guarded, proved, undone", "run")},
    {"sweeping": ("kernels × settings, measured into a study", "measure")},
    {"profiles": ("power inside a kernel (FinGraV)", "measure")},
    {"terminal": ("options, tables and progress that commands share", "show")},
    {"pages": ("figures, tables and the shell of HTML pages", "show")},
    {"meters": ("energy of windows and of programs; how sensors read", "measure")},
    {"devices": ("NVIDIA, PyTorch, simulated, recorded; wastenotd", "run")},
    {"planning": ("kernels' costs, objectives, plans and their promises", "decide")},
    {"study": ("measurements, stored", "measure")},
    {
        "frontiers": ("time–energy frontiers and their solvers", "decide"),
        "workloads": ("what runs: LLMs, captured models, kernels in PyTorch", "run"),
    },
    {"core": ("settings, errors, files, processes, words", "run")},
)
COLOURS = {"run": "#4c78a8", "measure": "#54a24b", "decide": "#e45756", "show": "#b279a2"}
LEGEND = {"run": "what runs", "measure": "measuring", "decide": "deciding", "show": "what users see"}
ROOMS = {room for floor in FLOORS for room in floor}


def draw() -> bytes:
    """The picture as SVG."""
    height = MARGIN + len(FLOORS) * (BOX_HEIGHT + GAP) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for index, floor in enumerate(FLOORS):
        width = (WIDTH - 2 * MARGIN - GAP * (len(floor) - 1)) / len(floor)
        top = MARGIN + index * (BOX_HEIGHT + GAP)
        for place, (name, (holds, group)) in enumerate(floor.items()):
            left = MARGIN + place * (width + GAP)
            middle = left + width / 2
            parts += [
                f'<rect x="{left:g}" y="{top}" width="{width:g}" height="{BOX_HEIGHT}" rx="8" fill="{COLOURS[group]}"/>',
                '<g text-anchor="middle" fill="white">',
                f'<text x="{middle:g}" y="{top + 25}" font-size="17" font-weight="bold">{name}</text>',
                f'<text x="{middle:g}" y="{top + 45}" font-size="13">{escape(holds)}</text></g>',
            ]
    bottom = height - 36
    for index, (group, words) in enumerate(LEGEND.items()):
        left = MARGIN + 170 * index
        parts.append(f'<rect x="{left}" y="{bottom}" width="16" height="16" rx="3" fill="{COLOURS[group]}"/>')
        parts.append(f'<text x="{left + 24}" y="{bottom + 13}" font-size="13" fill="#333">{words}</text>')
    parts.append(
        f'<text x="{WIDTH - MARGIN}" y="{bottom + 13}" font-size="13" text-anchor="end" fill="#333">'
        "a room imports only from floors below its own</text>"
    )
    return ("\n".join([*parts, "</svg>"]) + "\n").encode()


PAGES = (Page("architecture", pictures={"architecture.svg": draw}),)
