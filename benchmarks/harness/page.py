# SPDX-License-Identifier: Apache-2.0
"""A generated part of a page that is written by hand; what the part says is not decided here."""

from __future__ import annotations

import re
from pathlib import Path

# What a part or a page says while there is no result.
NOTHING = "No measurement is committed yet."


def with_part(page: Path, begin: str, end: str, part: str) -> str:
    """A page's text with what stands between two markers replaced; ValueError unless it has them, once, in order."""
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"{page}: wanted one {begin} followed by one {end}")
    return pattern.sub(lambda _: f"{begin}\n{part}\n{end}", text)
