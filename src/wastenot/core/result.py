"""What results can do: write themselves, and show themselves as pages and figures.

What draws a page stands above the result that it shows and imports it, so the result names it, and it is loaded when the
page is first asked for, as drivers of GPUs are (:mod:`wastenot.core.vendors`).
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from wastenot.core.files import write_text
from wastenot.core.values import as_values, document_of, json_text


class HasDocument:
    """A result that is kept as a JSON document.

    Attributes:
        kind: of the document, ``wastenot.KIND/1``, where the result itself names none.
        told_by: the function that makes the document of it, as ``package.module:function``; empty where its fields are it.
    """

    __slots__ = ()

    kind: ClassVar[str]
    told_by: ClassVar[str] = ""

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        told: dict[str, Any] = by_name(self.told_by)(self) if self.told_by else document_of(self.kind, as_values(self))
        return told

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON document, as ``--out`` does.

        Raises:
            BadInputError: the file cannot be written.
        """
        write_text(path, json_text(self.document()) + "\n")


class HasPage:
    """A result that has a page.

    Attributes:
        drawn_by: the function that makes the page of it, as ``package.module:function``.
    """

    __slots__ = ()

    drawn_by: ClassVar[str]

    def drawn(self) -> Any:
        """The page, not yet written: a :class:`wastenot.pages.page.Page`.

        Raises:
            MissingExtraError: the ``report`` extra is not installed.
        """
        return by_name(self.drawn_by)(self)

    def page(
        self, path: str | os.PathLike[str], *, figures: str | os.PathLike[str] | None = None, command: str | None = None
    ) -> tuple[Path, ...]:
        """Write the result as one page that needs no network, as ``--page`` does.

        Args:
            path: the HTML file to create or replace.
            figures: folder to write every figure to as SVG, PDF and PNG.
            command: that makes the page again, shown in its foot.

        Returns:
            The files written.

        Raises:
            BadInputError: a file cannot be written.
            MissingExtraError: the ``report`` extra is not installed.
        """
        drawn = self.drawn()
        drawn.write(path, command=command)
        return (Path(path), *([] if figures is None else drawn.export(figures)))


def by_name(name: str) -> Any:
    """What stands under ``package.module:name``, imported now."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
