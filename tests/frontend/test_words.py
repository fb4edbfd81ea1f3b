"""How numbers, times and names read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup, escape

from frontend import words

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.212, "212 ms"), (1.4, "1.4 s"), (7, "7 s"), (1320, "22 min"), (6180, "1 h 43 min"), (3600, "1 h"),
     (259_200, "3 days"), (-5, "0 s")],
)  # fmt: skip
def test_a_span_reads_as_people_say_it(seconds: float, said: str) -> None:
    assert words.span(seconds) == said.replace(" ms", "\u00a0ms").replace(" s", "\u00a0s").replace(
        " min", "\u00a0min"
    ).replace(" h", "\u00a0h").replace("1\u00a0h\u00a043", "1\u00a0h 43").replace(" days", "\u00a0days")


def test_an_age_is_never_less_than_a_second() -> None:
    assert words.age(0.2) == "1\u00a0s" and words.age(5.8) == "6\u00a0s"


def test_what_never_happened_says_so() -> None:
    assert words.ago(None, NOW) == "never"
    assert words.ago(NOW - timedelta(minutes=3), NOW) == "3\u00a0min ago"


def test_a_time_of_another_day_carries_its_day() -> None:
    assert words.clock(NOW - timedelta(hours=2), NOW) == "10:00"
    assert words.clock(NOW - timedelta(days=3), NOW) == "26\u00a0Feb 12:00"


def test_a_device_reads_as_node_and_gpu() -> None:
    assert words.device("gpu-0412/gpu3") == "gpu-0412 GPU\u00a03"
    assert words.of_device("gpu-0412/gpu3") == "GPU\u00a03 of gpu-0412"
    assert words.device("gpu-0412") == "gpu-0412"


def test_a_long_list_ends_in_a_count() -> None:
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b"]) == "a and b"
    assert words.listed(list("abcdef")) == "a, b, c and 3 more"


def test_the_first_sentence_stands_alone() -> None:
    assert words.first("GPU 3 of n1 is lost (Xid 79). The driver asks for a reboot.") == "GPU 3 of n1 is lost (Xid 79)"


def test_a_long_headline_ends_at_a_clause() -> None:
    warm = "GPU 2 of gpu-026 runs at 89 °C against 58 °C of its peers and slows down: SM clock 1,830 against 1,950 MHz."
    assert words.brief(warm, 64) == "GPU 2 of gpu-026 runs at 89 °C against 58 °C of its peers"
    assert words.brief("short.", 64) == "short"
    assert words.brief("x" * 20 + " " + "y" * 80, 64).endswith("…")


def test_kinds_spell_their_abbreviations() -> None:
    assert words.kind_words("gpu_bus_loss") == "GPU bus loss"
    assert words.kind_words("pcie_width_downgrade") == "PCIe width downgrade"


def test_host_names_and_units_do_not_break() -> None:
    assert words.kept("gpu-0412 lost 5 min ago") == '<span class="nowrap">gpu-0412</span> lost 5\u00a0min ago'


@given(st.text(max_size=200))
@settings(max_examples=60, deadline=None)
def test_kept_text_is_escaped_whatever_it_is(text: str) -> None:
    made = words.kept(text)
    plain = made.replace(Markup('<span class="nowrap">'), "").replace(Markup("</span>"), "").replace("\u00a0", " ")
    assert plain == str(escape(text)).replace("\u00a0", " ")


@given(st.text(max_size=300), st.integers(8, 80))
@settings(max_examples=60, deadline=None)
def test_shortened_text_fits(text: str, most: int) -> None:
    assert len(words.shorten(text, most)) <= most
