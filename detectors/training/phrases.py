"""How findings about training speak of steps, layers and numbers, and what they advise."""

from __future__ import annotations

from collections.abc import Sequence

from detectors.training.memory import RunState

#: PaLM (2204.02311): they went back some 100 steps before a spike and left out 200 to 500 batches.
SKIP_STEPS = 200


def layer_words(places: Sequence[str]) -> str:
    """``layer 12``, ``layers 3 and 4``, ``layers 3, 4 and 9 more``."""
    names = [part.removeprefix("layer:") for place in places for part in place.split() if part.startswith("layer:")]
    if not names:
        return "the model as a whole"
    if len(names) == 1:
        return f"layer {names[0]}"
    if len(names) <= 3:
        return f"layers {', '.join(names[:-1])} and {names[-1]}"
    return f"layers {names[0]}, {names[1]} and {len(names) - 2} more"


def plain_number(value: float) -> str:
    """Four digits that tell: 0.01234, 1.234, 1,234, 1.234e+09."""
    if value != value or value in (float("inf"), float("-inf")):
        return "not a number" if value != value else "infinite"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def way_back(state: RunState, run: int, step: float) -> str:
    """Which save to go back to and which steps to leave out, where a save before ``step`` is known."""
    saves = [int(s) for s in (state.run_saved[run], state.run_saved_before[run]) if 0 <= s < step]
    if not saves:
        return "No save before it is known to go back to."
    return f"To go back: save of step {max(saves):,}, which is before it."


def leave_out(state: RunState, run: int, step: float) -> str:
    """``way_back`` with the batches that PaLM would leave out."""
    first, last = max(int(step) - SKIP_STEPS // 2, 0), int(step) + SKIP_STEPS // 2
    return f"{way_back(state, run, step)} If the same batches bring it again, leave out steps {first:,} to {last:,}."
