"""The kernel lines that the readers were not written from stay read as they are once mended."""

from __future__ import annotations

import pytest

from tests.detectors.kernel.score import FIRST_RUN, lines


@pytest.mark.parametrize("corpus", FIRST_RUN)
def test_every_line_keeps_its_code_and_harmless_lines_tell_nothing(corpus: str) -> None:
    assert [row for row in lines(corpus) if not row.right] == []
