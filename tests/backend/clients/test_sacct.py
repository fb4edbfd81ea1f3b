"""Text of sacct: columns, delimiters, rows over several lines, clocks of every form."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.sacct import Columns, attempt_of_row, header_of, rows_of, state_of
from backend.clients.sacct_times import moments, times_of
from backend.clients.slurm_values import RecordError
from backend.facts import AttemptFacts

BERLIN = ZoneInfo("Europe/Berlin")
HEADER = "JobIDRaw|JobID|JobName|User|State|Submit|Eligible|Start|End|NodeList|AllocTRES|Comment|SubmitLine|ExitCode"


def read(text: str) -> tuple[list[AttemptFacts], list[str]]:
    """Attempts, and why other rows were not taken."""
    attempts, problems = [], []
    for columns, _, row in rows_of(text.split("\n")):
        try:
            attempt = attempt_of_row(columns, row)
        except RecordError as error:
            problems.append(str(error))
        else:
            attempts += [attempt] if attempt is not None else []
    return attempts, problems


def row(job: str = "7", name: str = "llm", comment: str = "", line: str = "sbatch x.sh", state: str = "FAILED") -> str:
    return f"{job}|{job}|{name}|ada|{state}|1000|1000|1010|1100|n[1-2]|gres/gpu=16,node=2|{comment}|{line}|3:0"


def test_a_row_is_an_attempt() -> None:
    ((one,), problems) = read(f"{HEADER}\n{row(line='sbatch -x n[8-9] --output=o-%j x.sh')}\n7.batch|7.batch|b|||\n")
    assert not problems[1:]
    assert one == AttemptFacts(
        job="7", restart=-1, run="llm", user="ada", state="FAILED", submit=1000.0, eligible=1000.0, start=1010.0,
        end=1100.0, nodes=("n1", "n2"), gpus_per_node=8, excluded=("n8", "n9"), name="llm", exit_code=3, source="sacct",
    )  # fmt: skip


@pytest.mark.parametrize("delimiter", ["|", "|#", "\x1f", ";", "@@"])
def test_any_delimiter_is_found_in_the_header(delimiter: str) -> None:
    text = f"{HEADER}\n{row()}\n{row('8')}".replace("|", delimiter)
    attempts, problems = read(text)
    assert [a.job for a in attempts] == ["7", "8"] and not problems


def test_a_delimiter_at_the_end_of_each_line_is_no_column() -> None:
    attempts, problems = read(f"{HEADER}|\n{row()}|\n")
    assert [a.exit_code for a in attempts] == [3] and not problems


def test_free_text_may_hold_delimiters_and_line_ends() -> None:
    text = "\n".join(
        [HEADER, row(name="a|b", comment="two\nlines | more"), row("8", line="sbatch --wrap=x\ny | z\n"), row("9")]
    )
    attempts, problems = read(text)
    assert [a.job for a in attempts] == ["7", "8", "9"] and not problems
    assert attempts[0].end == 1100.0 and attempts[1].nodes == ("n1", "n2")


def test_a_broken_row_costs_itself_and_no_other() -> None:
    text = "\n".join(
        [HEADER, row(), "8|8|cut off", row("9"), "x|x|no id|ada|FAILED|1|1|1|1|n1|||sbatch|0:0", row("10")]
    )
    attempts, problems = read(text)
    assert [a.job for a in attempts] == ["7", "9", "10"] and len(problems) == 2


def test_files_put_one_after_the_other_are_read_on() -> None:
    text = f"JobID|State|End\n1|COMPLETED|2026-01-01T00:00:00\n{HEADER}\n{row('2')}\n"
    attempts, problems = read(text)
    assert [(a.job, a.end) for a in attempts] == [("1", 1767225600.0), ("2", 1100.0)] and not problems


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("CANCELLED by 1000", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("COMPLETED", "COMPLETED"),
        ("RUNNING+", "RUNNING"),
    ],
)
def test_states_are_words_of_slurm(said: str, state: str) -> None:
    assert state_of(said) == state


def test_no_state_of_slurm_is_refused() -> None:
    with pytest.raises(RecordError, match="no job state"):
        state_of("EXPLODED")


@pytest.mark.parametrize("line", ["", "just words", "1|2|3", "User|State", "JobID|State|na me|x-y"])
def test_what_is_no_header_is_none(line: str) -> None:
    assert header_of(line) is None


# --- clocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "found"),
    [
        ("1774742400", UTC, (1774742400.0,)),
        ("2026-03-29T00:00:00", UTC, (1774742400.0,)),
        ("2026-03-29T01:00:00+01:00", UTC, (1774742400.0,)),
        ("2026-03-29T00:00:00Z", BERLIN, (1774742400.0,)),
        ("2026-10-25T02:30:00", BERLIN, (1792888200.0, 1792891800.0)),
        ("2026-10-25T03:30:00", BERLIN, (1792895400.0,)),
        ("Unknown", UTC, ()),
        ("", UTC, ()),
        ("0", UTC, ()),
        ("16:10:48", UTC, None),
        ("Ystday 16:10", UTC, None),
        ("2 Dec 16:10", UTC, None),
    ],
)
def test_a_time_means_what_its_clock_showed(text: str, zone: ZoneInfo, found: tuple[float, ...] | None) -> None:
    assert moments(text, zone) == found


@settings(max_examples=100, deadline=None)
@given(st.integers(1_792_880_000, 1_792_900_000), st.integers(0, 9_000))
def test_elapsed_time_tells_the_two_hours_apart_that_a_clock_shows_alike(start: int, elapsed: int) -> None:
    """A job that began before clocks went back, or that ended after it, is placed to the second."""

    def shown(at: int) -> str:
        return datetime.fromtimestamp(at, BERLIN).strftime("%Y-%m-%dT%H:%M:%S")

    end = start + elapsed
    cells = {"Start": shown(start), "End": shown(end), "ElapsedRaw": str(elapsed)}
    read_ = times_of(cells, BERLIN)
    both_twice = all(len(moments(cells[name], BERLIN) or ()) == 2 for name in ("Start", "End"))
    assert read_.start is not None and read_.end is not None
    assert abs(read_.end - read_.start - elapsed) <= 2
    if not both_twice:
        assert abs(read_.start - start) <= 2


def test_a_running_job_began_when_its_elapsed_time_says() -> None:
    cells = {"Start": "2026-10-25T02:30:00", "End": "Unknown", "ElapsedRaw": "600"}
    assert times_of(cells, BERLIN, now=1792892400.0).start == 1792891800.0
    assert times_of(cells, BERLIN, now=1792888800.0).start == 1792888200.0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(alphabet="1|a\n\x1f ;", max_size=20), max_size=12))
def test_any_lines_under_a_header_are_rows_or_are_told(lines: list[str]) -> None:
    read("\n".join([HEADER, *lines]))
    columns = Columns(("JobIDRaw", "State"), "\x1f")
    list(rows_of(lines, UTC, columns))
