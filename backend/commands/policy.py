"""policy: check the rules of a configuration, or ask a running server what it would do about a fault."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import orjson

from backend.commands.ask import answered
from backend.commands.server import settings_of
from backend.decide.rules import mistakes
from backend.registry import limits_of
from backend.settings import SettingsError
from detectors.catalogue import load

GLYPHS = {"holds": "ok    ", "asks": "ASKS  ", "refuses": "REFUSES"}


def policy(arguments: argparse.Namespace) -> int:
    return check(arguments) if arguments.action == "check" else explain(arguments)


def check(arguments: argparse.Namespace) -> int:
    """0: nothing is wrong; 1: each mistake on a line of its own, also those of the file itself."""
    try:
        settings = settings_of(arguments.config)
    except SettingsError as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    limits = limits_of(settings.policy)
    wrong = mistakes(limits.rules, load().kinds)
    if arguments.json:
        print(orjson.dumps({"rules": len(limits.rules), "mistakes": wrong}).decode())
    elif wrong:
        print("\n".join(wrong))
    else:
        print(f"The policy is sound: {len(limits.rules)} rule{'' if len(limits.rules) == 1 else 's'} of this site.")
    return 1 if wrong else 0


def explain(arguments: argparse.Namespace) -> int:
    """0: told; 1: the server did not answer, or knows no such kind."""
    words = {"kind": arguments.kind, "node": arguments.node, "evidence": arguments.evidence}
    words |= {"severity": arguments.severity, "seen": str(arguments.seen)}
    words |= {"mode": arguments.mode} if arguments.mode else {}
    return answered(arguments, "policy/explain", told, **words)


def told(body: dict[str, Any]) -> str:
    """The answer for people: the sentence first, then steps, guards that do not hold, and advice."""
    rule = f"rule {body['rule']!r}" if body["rule"] else "the kind's own ladder"
    lines = [body["sentence"], f"By {rule}, in {body['mode']}: {body['recommended']}."]
    lines += [] if body["known"] else [f"{body['node']} is not in the fleet; that is why guards refuse."]
    lines += [f"  {number}. {step['text']}" for number, step in enumerate(body["steps"], 1)]
    loud = [guard for guard in body["guards"] if guard["verdict"] != "holds"]
    lines += [f"  {GLYPHS[guard['verdict']]} {guard['guard']}: {guard['reason']}" for guard in loud]
    lines += [f"  {len(body['guards']) - len(loud)} of {len(body['guards'])} guards hold."] if body["steps"] else []
    return "\n".join([*lines, *(f"  Advice: {text}" for text in body["advice"])])
