"""The head of a page as a terminal shows it: its sentence, and its panels. Imports rich: import it where you print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wastenot.terminal.tables import Group, Padding, Paragraph, Text, headline

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.pages.page import Page
    from wastenot.pages.panel import Panel, Tone

_COLOURS: dict[Tone, str] = {
    "kept": "green", "missed": "red", "undecided": "yellow", "promised": "blue", "as-measured": "yellow", "neutral": "",
}  # fmt: skip


def sentence_text(sentence: str, tone: Tone) -> RenderableType:
    """What matters most, coloured by how sure it is."""
    return Paragraph(Text(f"{sentence}.", style=f"bold {_COLOURS[tone]}".rstrip()))


def panel_text(panel: Panel) -> RenderableType:
    """A panel; its commands stand on lines of their own, to be copied."""
    parts: list[RenderableType] = [Paragraph(Text.assemble((panel.value, "bold"), panel.sentence.removeprefix(panel.value)))]
    parts += [Text(f"  {command}", style="green") for command in panel.commands]
    if panel.undo:
        parts.append(Paragraph(Text(f"To undo: {'; '.join(panel.undo)}")))
    parts += [Paragraph(Text.assemble((f"{line.label}: ", "dim"), line.text)) for line in panel.lines]
    if panel.note is not None:
        parts.append(Paragraph(Text(panel.note)))
    return Group(Text(panel.title, style="bold"), Padding(Group(*parts), (0, 0, 1, 2)))


def page_text(page: Page) -> RenderableType:
    """What a page says before its figures and tables."""
    name, where = page.title
    notes = (Paragraph(Text(f"note: {note}", style="yellow")) for note in page.notes)
    return Group(
        headline(name, where.removeprefix("on "), page.origin, page.brand),
        sentence_text(f"{page.effect}: {page.verdict}", page.tone),
        *notes,
        "",
        *map(panel_text, page.panels),
    )
