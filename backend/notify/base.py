"""The Notifier protocol and its error: one message, one channel, one try. Retry and order live around it."""

from __future__ import annotations

from typing import Protocol

from backend.tidings import MessageFacts, Receipt


class NotifyError(Exception):
    """A channel did not take a message. ``permanent``: never will; ``retry_after_s``: when the channel said to."""

    def __init__(self, message: str, *, permanent: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.retry_after_s = retry_after_s


class Notifier(Protocol):
    @property
    def kind(self) -> str:
        """email, slack, pagerduty ...: the name of the channel in the outbox."""
        ...

    def send(self, message: MessageFacts) -> Receipt:
        """One try, bounded in time. Raises NotifyError.

        ``message.again``: an earlier try may have arrived; a channel that can looks first, and answers with what it
        found. ``message.earlier`` tells where the thread is (ts of Slack): what receipts hold in attrs comes back.
        """
        ...
