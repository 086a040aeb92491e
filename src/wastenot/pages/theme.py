"""How figures look on light and dark backgrounds. Marks name a style or a range; only this file names their colours."""

from __future__ import annotations

from typing import Any

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"

# Distinct on both backgrounds, as far as possible for eight colours also to colour-blind readers.
CATEGORIES = ("#2f6fde", "#e08a00", "#0f9b8e", "#b04bb8", "#d6483b", "#7a8699", "#7c5cff", "#8a9a00")


def _config(
    *,
    ground: str,
    ink: str,
    faint: str,
    line: str,
    bar: str,
    accent: str,
    good: str,
    pale: float,
    scale: list[str],
    ramp: list[str],
    alert: str,
) -> dict[str, Any]:
    return {
        "background": ground,
        "font": FONT,
        "padding": 6,
        "view": {"stroke": line, "strokeWidth": 1},
        "title": {
            "color": ink,
            "subtitleColor": faint,
            "fontSize": 15,
            "subtitleFontSize": 12,
            "subtitlePadding": 5,
            "anchor": "start",
            "offset": 12,
        },
        "axis": {
            "labelColor": faint,
            "titleColor": ink,
            "gridColor": line,
            "domainColor": line,
            "tickColor": line,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "gridOpacity": 0.7,
        },
        "legend": {"labelColor": ink, "titleColor": faint, "labelFontSize": 12, "titleFontSize": 12},
        "range": {"category": list(CATEGORIES), "diverging": scale, "heatmap": scale, "ramp": ramp},
        "style": {
            "label": {"color": ink, "fontSize": 12},
            "halo": {"color": ground, "stroke": ground, "strokeWidth": 5, "opacity": 0.85, "fontSize": 12},
            "small-label": {"color": faint, "fontSize": 11},
            "rule": {"color": faint, "strokeDash": [2, 3], "strokeWidth": 1.2},
            "auto-bar": {"color": bar},
            "box": {"stroke": ground},
            "auto-box": {"color": bar, "stroke": ground},
            "critical": {"color": alert},
            "waiting-bar": {"color": ground, "stroke": faint, "strokeWidth": 0.8},
            "label-on-pale": {"color": ink, "fontSize": 10},
            "label-on-strong": {"color": ground, "fontSize": 10},
            "plan-bar": {"color": accent},
            "plan": {
                "color": ink,
                "fill": ink,
                "stroke": ground,
                "strokeWidth": 1.5,
                "shape": "diamond",
                "size": 120,
                "filled": True,
                "opacity": 1,
            },
            "promise": {"stroke": ink, "fill": ground, "strokeWidth": 1.4, "shape": "diamond", "size": 230, "opacity": 1},
            "applicable": {
                "color": good,
                "fill": good,
                "stroke": ground,
                "strokeWidth": 1.5,
                "shape": "square",
                "size": 180,
                "filled": True,
                "opacity": 1,
            },
            "interval": {"color": ink, "strokeWidth": 1.5, "strokeDash": [1, 0], "opacity": 1},
            "dot": {"color": ink, "fill": ground, "stroke": ink, "strokeWidth": 1.8, "size": 70, "opacity": 1},
            "good-region": {"color": good, "opacity": 0.13},
            "good-label": {"color": good, "fontSize": 11},
            "curve": {"color": ink, "strokeWidth": 1.8, "opacity": 0.75},
            "corrected-line": {"strokeWidth": 1.6, "opacity": 0.8},
            "pale-line": {"strokeWidth": 1.2, "opacity": pale},
            "leader": {"color": faint, "strokeWidth": 1, "strokeDash": [1, 0], "opacity": 0.9},
        },
    }


LIGHT = _config(
    ground="#ffffff",
    ink="#1b2533",
    faint="#5d6b7e",
    line="#dde3ea",
    bar="#c9d3df",
    accent="#2f6fde",
    good="#15803d",
    pale=0.4,
    scale=["#b4530a", "#e59a4c", "#f8e3c8", "#fbfbfa", "#c5e6de", "#53b3a1", "#0b7266"],
    ramp=["#d3ebe3", "#9fd3cd", "#6ab0c4", "#4682b8", "#3d52a0", "#332a73"],
    alert="#d6483b",
)

DARK = _config(
    ground="#161d27",
    ink="#e6ebf2",
    faint="#9aa8ba",
    line="#2b3645",
    bar="#46556a",
    accent="#6ea2ff",
    good="#4ade80",
    pale=0.75,
    scale=["#e58a3a", "#a8611f", "#5b3a1b", "#1d2631", "#164a46", "#1f8376", "#4fc9b5"],
    ramp=["#1d4048", "#1f6470", "#2f86a8", "#5f9fdc", "#9db8f5", "#dcdcff"],
    alert="#ff8a80",
)
