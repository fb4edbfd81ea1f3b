"""Masks secrets in text that leaves the house. Stdlib only and Python 3.8-clean: the job wrapper ships it too."""

from __future__ import annotations

import re

MASK = "***"

# Every pattern scans each character a bounded number of times: a repeat has an upper bound, or cannot fail after it
# (nothing follows, or the end of the text would do), or can start only once in a run. So the time is linear.

#: Names whose value is secret. What stands before the name does not matter (HF_TOKEN, db.password, "apiKey").
_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|(?<=[_.-])pass|pwd|secret|credentials?|api[_-]?key|apikey|auth[_-]?key|access[_-]?key(?:[_-]?id)?"
    r"|private[_-]?key|signing[_-]?key|encryption[_-]?key|account[_-]?key|license[_-]?key|secret[_-]?key|token|jwt"
    r"|session[_-]?id|x-amz-signature|x-amz-credential|x-amz-security-token|[?&]sig(?:nature)?|webhook[_-]?url)"
)
#: A value: a quoted text up to its quote or the end of the line, else up to a separator.
_VALUE = r"""(?:"(?:[^"\\\n]|\\.)*(?:"|\\?$)|'(?:[^'\\\n]|\\.)*(?:'|\\?$)|[^\s,;&"'<>)\]}]+)"""

#: Whole texts that are secret whatever stands around them.
_WHOLE = tuple(
    re.compile(pattern)
    for pattern in (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b",  # AWS access key ids
        r"(?<![\w-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",  # JSON web tokens
        r"\bwk_[A-Za-z0-9_-]{20,}",  # ours
        r"\b(?:gh[opsur]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})",
        r"\bxox[a-z]-[A-Za-z0-9-]{8,}|\bxapp-[A-Za-z0-9-]{8,}",  # Slack
        r"\b(?:hf_|npm_|dckr_pat_|pypi-|nvapi-|ya29\.|shpat_)[A-Za-z0-9_-]{20,}",
        r"\bsk-[A-Za-z0-9_-]{20,}|\bAIza[A-Za-z0-9_-]{30,}|\bSG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}",
    )
)
#: (pattern, what stays): the secret part of a longer text.
_PARTS = (
    (re.compile(r"(://)[^\s/?#\"'<>]{1,1024}@"), r"\1***@"),  # https://user:secret@host
    (
        re.compile(r"(?i)(hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/)[^\s\"'<>|]+"),
        r"\1***",
    ),
    (re.compile(r"(?im)((?:set-)?cookie[\"']?[ \t]{0,4}[:=][ \t]{0,4})[^\n\"']+"), r"\1***"),
    (
        re.compile(
            r"(?i)(authorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
            r"(?:(?:bearer|basic|digest|token|negotiate|apikey)[ \t]{1,4})?)[^\s,;\"'<>]+"
        ),
        r"\1***",
    ),
    (re.compile(r"(AWS4-HMAC-SHA256 )[^\n\"']+"), r"\1***"),
    (re.compile(r"(?i)(\bbearer[ \t]{1,4})[A-Za-z0-9._~+/=-]{12,}"), r"\1***"),
    (
        re.compile(
            r"(?i)((?<![\w-])-{1,2}[a-z0-9-]{0,24}(?:passw(?:or)?d|passphrase|token|secret|api-key)[ \t]{1,4})(?!-)\S+"
        ),
        r"\1***",
    ),
)
_NAMED = re.compile(rf"(?im)({_NAMES}[\"']?[ \t]{{0,4}}(?:=>|:=|[:=])[ \t]{{0,4}})({_VALUE})")
#: "token: 17" and "token=0.5" count text, they are no secrets; the words of an authorization scheme were handled above.
_COUNT = re.compile(r"[+-]?\d{1,9}(?:\.\d{0,9})?(?:[eE][+-]?\d{1,3})?[a-zA-Z%/]{0,4}\Z")


def redact(text: str) -> str:
    """``text`` with passwords, tokens, keys, credentials in URLs, cookies and webhooks masked. Never raises.

    Takes time linear in the text. Masks rather too much than too little; doing it twice changes nothing.
    """
    for pattern in _WHOLE:
        text = pattern.sub(MASK, text)
    for pattern, kept in _PARTS:
        text = pattern.sub(kept, text)
    return _NAMED.sub(_masked, text)


def _masked(match: re.Match[str]) -> str:
    name, value = match.group(1), match.group(2)
    if "token" in name.lower() and _COUNT.match(value):
        return match.group(0)
    if name.lower().startswith("pwd") and value.startswith("/"):  # the working folder of a shell
        return match.group(0)
    quote = value[0] if value[0] in "\"'" else ""
    return name + quote + MASK + quote
