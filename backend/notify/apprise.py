"""The long tail by Apprise, an extra: each of its services gets the message as text, split where it has limits."""

from __future__ import annotations

import importlib
import logging
from typing import Any

from backend.notify.base import NotifyError
from backend.notify.outgoing import link, outgoing
from backend.notify.plain import letter
from backend.settings import Apprise
from backend.tidings import MessageFacts, Receipt
from frontend.mail import render as mail_page

#: Messages of which some services are served already, remembered so that the next try leaves those alone.
REMEMBERED = 1000
#: Severity in Apprise's words.
TYPES = {"critical": "failure", "high": "failure", "warning": "warning", "info": "info"}


class AppriseNotifier:
    """Addresses hold keys: they stand in no error, and Apprise's own log is silent. Raises NotifyError."""

    kind = "apprise"

    def __init__(self, settings: Apprise, url: str) -> None:
        self._settings = settings
        self._url = url
        self._served: dict[str, set[int]] = {}

    def send(self, message: MessageFacts) -> Receipt:
        """One try of each service that does not have it yet. Apprise says only whether one took it, not why: a failure
        is tried again."""
        services = self._services()
        served = self._served.get(message.id, set())
        shown = outgoing(message)
        page = mail_page.render(letter(shown, link(shown, self._url)))
        kind = "success" if message.kind == "closed" else TYPES[message.severity.word]
        failed = []
        for place, service in enumerate(services):
            if place in served:
                continue
            if service.notify(body=page.text, title=page.subject, notify_type=kind):
                served.add(place)
            else:
                failed.append(f"{place + 1} ({service.service_name})")
        if failed:
            self._remember(message.id, served)
            raise NotifyError(f"service {', '.join(failed)} of {len(services)} in [apprise] urls did not take it")
        self._served.pop(message.id, None)
        return Receipt(f"taken by {len(services)} of {len(services)} services")

    def _services(self) -> list[Any]:
        """Raises NotifyError: permanent where an address is none of Apprise's, by its place."""
        try:
            apprise = importlib.import_module("apprise")
        except ImportError:
            raise NotifyError("Apprise is not installed: pip install 'watchkeeper[apprise]'", permanent=True) from None
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        found = []
        for place, address in enumerate(self._settings.urls.get_secret_value().split(), 1):
            service = apprise.Apprise.instantiate(address, suppress_exceptions=True)
            if service is None:
                raise NotifyError(f"address {place} of [apprise] urls is none that Apprise knows", permanent=True)
            service.overflow_mode = "split"
            service.socket_connect_timeout = service.socket_read_timeout = self._settings.timeout_s
            found.append(service)
        return found

    def _remember(self, message_id: str, served: set[int]) -> None:
        while len(self._served) >= REMEMBERED and message_id not in self._served:
            self._served.pop(next(iter(self._served)))
        self._served[message_id] = served
