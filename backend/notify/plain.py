"""A message as a letter: what mail and text channels render."""

from __future__ import annotations

from backend.tidings import MessageFacts
from frontend.mail import render as mail_page


def letter(shown: MessageFacts, url: str) -> mail_page.Letter:
    """``shown`` is fit to leave (outgoing.py); ``url`` is whole or empty."""
    return mail_page.Letter(
        kind=shown.kind,
        cluster=shown.cluster,
        incident=shown.incident,
        severity=shown.severity.word,
        headline=shown.headline,
        why=shown.why,
        facts=shown.facts,
        evidence=shown.evidence,
        advice=shown.advice,
        url=url,
        at=shown.at,
        simulated=shown.simulated,
        subject=shown.subject,
        moments=shown.moments,
        curves=shown.curves,
    )
