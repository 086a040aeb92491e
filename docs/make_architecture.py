"""Draw the picture of the rooms in docs/architecture.md.

    python docs/make_architecture.py

Rooms stand in columns from left to right in the order in which they may import; arrows show what flows between them.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).parent / "images" / "architecture.svg"
WIDTH, HEIGHT = 1860, 620
BOX_WIDTH, BOX_HEIGHT = 150, 62

# Of each room: left and top edge, what it holds, and the group that colours it.
ROOMS: dict[str, tuple[int, int, str, str]] = {
    "frontiers": (20, 70, "time–energy frontiers", "decide"),
    "workloads": (20, 295, "kernels of LLMs", "run"),
    "operations": (240, 490, "kernels in PyTorch", "run"),
    "study": (240, 70, "measurements, stored", "measure"),
    "planning": (460, 70, "plans, certificates", "decide"),
    "analyses": (460, 172, "context, pairs, order", "decide"),
    "capturing": (460, 295, "any PyTorch model", "run"),
    "devices": (460, 392, "NVIDIA, simulated, ...", "run"),
    "daemon": (680, 172, "clocks without root", "run"),
    "tasks": (680, 295, "what to measure", "run"),
    "sensors": (680, 392, "how sensors read", "measure"),
    "metering": (900, 490, "energy of programs", "measure"),
    "profiling": (900, 392, "power inside kernels", "measure"),
    "sweeping": (900, 295, "kernels × settings", "measure"),
    "natural": (1120, 295, "clocks nobody set", "measure"),
    "tuning": (900, 70, "search, validate, fit", "decide"),
    "reporting": (1120, 70, "tables, figures, pages", "show"),
    "runtime": (1310, 172, "plans at work", "decide"),
    "api": (1310, 295, "verbs in Python", "show"),
    "terminal": (1310, 392, "options, tables, bars", "show"),
    "jobs": (1500, 70, "jobs that come back", "decide"),
    "pipelines": (1500, 172, "pipeline parallelism", "decide"),
    "serving": (1500, 274, "engines, servers", "decide"),
    "programs": (1690, 172, "wn.apply, trainers", "run"),
    "cli": (1690, 392, "verbs as commands", "show"),
}
COLOURS = {"run": "#4c78a8", "measure": "#54a24b", "decide": "#e45756", "show": "#b279a2"}
LEGEND = {"run": "what runs", "measure": "measuring", "decide": "deciding", "show": "what users see"}

# From one room to another: what flows, and the corners of the arrow.
FLOWS: list[tuple[str, list[tuple[int, int]], tuple[int, int]]] = [
    ("frontier", [(95, 70), (95, 40), (510, 40), (510, 70)], (300, 34)),
    ("sweep", [(390, 101), (460, 101)], (422, 94)),
    ("plan", [(570, 70), (570, 54), (975, 54), (975, 70)], (770, 50)),
    ("plan, curves", [(560, 70), (560, 40), (1195, 40), (1195, 70)], (860, 34)),
    ("validation", [(1050, 101), (1120, 101)], (1083, 94)),
    ("", [(535, 132), (535, 172)], (0, 0)),
    ("kernels", [(95, 295), (95, 276), (755, 276), (755, 295)], (300, 270)),
    ("kernels", [(95, 357), (95, 521), (240, 521)], (160, 514)),
    ("", [(390, 521), (535, 521), (535, 454)], (0, 0)),
    ("", [(390, 505), (425, 505), (425, 326), (460, 326)], (0, 0)),
    ("clocks", [(610, 405), (645, 405), (645, 203), (680, 203)], (645, 240)),
    ("workload", [(610, 326), (680, 326)], (644, 319)),
    ("readings", [(610, 423), (680, 423)], (644, 416)),
    ("response", [(830, 423), (900, 423)], (864, 416)),
    ("readings", [(580, 454), (580, 521), (900, 521)], (740, 514)),
    ("tasks", [(830, 326), (900, 326)], (864, 319)),
    ("SSE", [(975, 392), (975, 357)], (993, 379)),
    ("measurements", [(1000, 295), (1000, 254), (315, 254), (315, 132)], (800, 248)),
    ("points", [(940, 295), (940, 132)], (962, 200)),
    ("tasks", [(1050, 326), (1120, 326)], (1084, 319)),
    ("curves", [(1220, 295), (1220, 240), (1010, 240), (1010, 132)], (1090, 234)),
    ("pages", [(1240, 132), (1240, 200), (1385, 200), (1385, 295)], (1312, 194)),
    ("energy", [(1050, 521), (1765, 521), (1765, 454)], (1215, 514)),
    ("profiles", [(1050, 423), (1290, 423), (1290, 111), (1270, 111)], (1170, 416)),
    ("", [(1460, 350), (1735, 350), (1735, 392)], (0, 0)),
    ("", [(1460, 423), (1690, 423)], (0, 0)),
    ("", [(1460, 203), (1500, 203)], (0, 0)),
    ("", [(1480, 203), (1480, 101), (1500, 101)], (0, 0)),
    ("", [(1480, 203), (1480, 290), (1500, 290)], (0, 0)),
    ("", [(1650, 203), (1690, 203)], (0, 0)),
    ("verbs", [(1650, 101), (1670, 101), (1670, 423), (1690, 423)], (1645, 368)),
    ("", [(1650, 305), (1670, 305), (1670, 423), (1690, 423)], (0, 0)),
    ("apply", [(1765, 234), (1765, 392)], (1788, 310)),
]


def draw() -> str:
    """The picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, sans-serif">',
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 10 5 0 10z" fill="#666"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for label, corners, (x, y) in FLOWS:
        path = "M" + " L".join(f"{left} {top}" for left, top in corners)
        parts.append(f'<path d="{path}" fill="none" stroke="#666" stroke-width="1.4" marker-end="url(#arrow)"/>')
        if label and x:
            parts.append(
                f'<text x="{x}" y="{y}" font-size="12" text-anchor="middle" fill="#333" stroke="white" stroke-width="4" '
                f'paint-order="stroke">{escape(label)}</text>'
            )
    for name, (left, top, holds, group) in ROOMS.items():
        middle = left + BOX_WIDTH // 2
        parts += [
            f'<rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8" fill="{COLOURS[group]}"/>',
            '<g text-anchor="middle" fill="white">',
            f'<text x="{middle}" y="{top + 27}" font-size="17" font-weight="bold">{name}</text>',
            f'<text x="{middle}" y="{top + 47}" font-size="12">{escape(holds)}</text></g>',
        ]
    for index, (group, words) in enumerate(LEGEND.items()):
        left = 20 + 170 * index
        parts.append(f'<rect x="{left}" y="585" width="16" height="16" rx="3" fill="{COLOURS[group]}"/>')
        parts.append(f'<text x="{left + 24}" y="598" font-size="13" fill="#333">{words}</text>')
    parts.append(
        f'<text x="{WIDTH - 20}" y="598" font-size="13" text-anchor="end" fill="#333">'
        "a room imports only from rooms further left; everything speaks setting, arrays, errors</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
