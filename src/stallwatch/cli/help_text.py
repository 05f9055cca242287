"""How help is laid out: every line of a text is wrapped to the terminal's width, and what is indented stays so.

argparse offers either to flow everything into one paragraph or to leave all lines as they are, too long or not.
"""

from __future__ import annotations

import argparse
import textwrap

__all__ = ["HelpLayout"]


class HelpLayout(argparse.HelpFormatter):
    """A ``formatter_class`` that keeps the lines of description and epilog apart; names with hyphens are not broken."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_wrapped(line, width, indent) for line in text.strip("\n").splitlines())

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _wrapped(line: str, width: int, indent: str) -> str:
    text = line.lstrip()
    margin = indent + " " * (len(line) - len(text))
    return textwrap.fill(text, width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
