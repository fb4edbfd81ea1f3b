"""Orders by a site's own commands: only those of the configuration, without a shell, with an empty environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.act.base import ActionError
from backend.clients.hostlist import is_host
from backend.clients.slurm import Ran, Run, run_bounded
from backend.facts import OrderFacts, Outcome, Verb
from backend.security.redact import redact

#: Exit code for "try again later" (sysexits.h: EX_TEMPFAIL).
LATER = 75
WORDS = 500
#: What is put into an argument; the settings check the names.
_PLACE = re.compile(r"\{([a-z]*)\}")
_JOB = re.compile(r"[A-Za-z0-9][\w.+-]{0,127}")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """One command of the configuration. ``does`` carries the order out; ``asks`` tells after a crash whether it was:
    exit code 0 = it was, 1 = it was not, else nobody knows. Arguments hold ``{node}``, ``{job}``, ``{order}`` ..."""

    does: tuple[str, ...]
    asks: tuple[str, ...] = ()


def filled(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The arguments with their values; each stays one argument, whatever stands in it.

    Raises ActionError for a node or job whose name could be read as an option or as more than a name.
    """
    for name in ("node", "peer"):
        if values.get(name) and not is_host(values[name]):
            raise ActionError(f"{values[name]!r} is no host name; nothing was run", permanent=True)
    if values.get("job") and not _JOB.fullmatch(values["job"]):
        raise ActionError(f"{values['job']!r} is no job id; nothing was run", permanent=True)
    return [words[0], *(_PLACE.sub(lambda place: values.get(place[1], ""), word) for word in words[1:])]


def values_of(order: OrderFacts) -> dict[str, str]:
    return {
        "node": order.node,
        "job": order.job,
        "order": f"{order.cluster}-{order.id}",
        "kind": order.kind,
        "incident": str(order.incident),
        "reason": order.reason,
    }


def ran(words: Sequence[str], values: Mapping[str, str], timeout_s: float, run: Run = run_bounded) -> Ran:
    """One command, run. Raises ActionError: permanent where it cannot be started, not where it did not end."""
    command = filled(words, values)
    try:
        return run(command, ENVIRONMENT, timeout_s)
    except TimeoutError:
        raise ActionError(f"{command[0]} did not end within {timeout_s:g} s; it was killed") from None
    except OSError as bad:
        raise ActionError(f"{command[0]} cannot be run: {bad.strerror or bad}", permanent=True) from bad


def last_words(done: Ran) -> str:
    """What a command said last, redacted."""
    lines = [line.strip() for line in (done.err or done.out).splitlines() if line.strip()]
    return redact(lines[-1])[:WORDS] if lines else "it said nothing"


class CommandHand:
    """A Hand over the commands of the configuration, one a verb."""

    def __init__(
        self, recipes: Mapping[Verb, Recipe], timeout_s: float = 30.0, run: Run = run_bounded, name: str = "command"
    ) -> None:
        self._recipes, self._timeout_s, self._run, self._name = dict(recipes), timeout_s, run, name

    @property
    def name(self) -> str:
        return self._name

    @property
    def can(self) -> frozenset[Verb]:
        return frozenset(self._recipes)

    def witness(self, order: OrderFacts) -> dict[str, str]:
        return {"command": self._recipes[order.verb].does[0]}

    def perform(self, order: OrderFacts) -> Outcome:
        if self._was_done(order):
            return Outcome(False, f"{order.verb} of {order.node or order.job} had been done already.")
        done = ran(self._recipes[order.verb].does, values_of(order), self._timeout_s, self._run)
        if done.code == 0:
            return Outcome(True, f"{order.verb} of {order.node or order.job}: {last_words(done)}", {"exit": "0"})
        said = f"{self._recipes[order.verb].does[0]} ended with {done.code}: {last_words(done)}"
        raise ActionError(said, permanent=done.code != LATER)

    def settle(self, order: OrderFacts) -> Outcome | None:
        asks = self._recipes[order.verb].asks
        if not asks:
            raise ActionError("this command has no question after it (asks); nothing tells", permanent=True)
        done = ran(asks, values_of(order), self._timeout_s, self._run)
        if done.code == 0:
            return Outcome(True, f"{order.verb} of {order.node or order.job}: {last_words(done)}")
        if done.code == 1:
            return None
        raise ActionError(f"{asks[0]} ended with {done.code}: {last_words(done)}", permanent=done.code != LATER)

    def _was_done(self, order: OrderFacts) -> bool:
        asks = self._recipes[order.verb].asks
        return bool(asks) and ran(asks, values_of(order), self._timeout_s, self._run).code == 0
