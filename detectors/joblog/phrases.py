"""Words by which a line of a training log tells what it is: quoted, told in passing, a step, an end that went well.

The standard library only, and nothing newer than Python 3.8: the job wrapper carries this file to compute nodes.
"""

from __future__ import annotations

import re

#: Characters of a line that are looked at; a longer one is read in pieces before it comes here.
MAX_CHARS = 8192
#: Characters of a line that are kept for people.
KEPT_CHARS = 400
#: A line of program text, as a traceback quotes it, or of a configuration that is printed.
_CODE = re.compile(
    r"^(?:\[\w{1,16}\]:\s?|\d{1,5}: )?[\s│|❱>\d]{0,40}(?:raise |except |return |assert |elif |import "
    r"|from [\w.]+ import|"
    r"def |class |# |logger\.|logging\.|print\(|warnings\.warn|Namespace\(|export |SBATCH |#SBATCH|"
    r"[A-Z][A-Z_]{4,40}=\S{0,40}(?:\s|$))"
)
#: Words that say somebody dealt with it, or that it is only told.
_SOFT = re.compile(
    r"\bWARN(?:ING)?\b|\bINFO\b|\bDEBUG\b|\[W\b|\b[Rr]etr(?:y|ying|ied)\b(?! count| exceeded)|\bretries left"
    r"|will (?:be )?retr|"
    r"[Aa]ttempt \d+\s?(?:/|of)|\b[Ss]kipp(?:ing|ed)\b|[Ii]gnor(?:ed|ing)\b|[Ff]all(?:ing)?[ -]?back|\brecovered\b|"
    r"\b[Cc]aught\b(?! (?:signal|SIG|collective))|[Nn]on-?fatal\b|\bhandled\b|Exception ignored|reconnect"
    r"|[Tt]rying (?:to resume|again)|[Rr]esum(?:e|ed|ing) (?:the )?(?:download|after|from|job|run|training)"
    r"|[;,(\-]\s?(?:using|trying|picked|continuing|proceeding|rolled back|ok\b|reopened|(?:treat|count)ed as)\b"
    r"|\(expected\b|\bexpected (?:failure|error|exception)\b|\b(?:parent|main process) (?:is )?(?:unaffected|goes on)\b"
    r"|\b(?:bypassing|tolerated|suppressed|zero_infinity|not fatal|harmless|benign|no harm)\b"
    r"|\b(?:used?|using) [^\n]{1,60} instead\b"
    r"|^(?:\S{1,80} ){0,4}(?:wandb|COMET|comet_ml|mlflow|neptune|clearml|tensorboard)\b"
    r"|\b(?:going|goes) on\b|\b(?:below|under|within) (?:the |its )?(?:limits?|threshold|tolerance|budget)\b"
    r"|[Tt]emporary (?:cache )?directory|\bauto-?(?:recover|restart|retr)\w{0,6}\b"
)
#: Who tells of the past.
_PAST = re.compile(
    r"\b(?:[Ll]ast|[Pp]revious(?:ly)?|[Ee]arlier|[Pp]rior|[Pp]ast|[Hh]istory|[Rr]esum(?:ed?|ing)|[Rr]estored|[Rr]ecover(?:ed|ing)"
    r"|[Rr]estart(?:ed|ing)|[Ss]imulat(?:ed?|ing)|[Ii]nject(?:ed|ing)|[Dd]rill)\b"
)
#: The level at the head of a line, before anything is said.
_LEVEL = re.compile(r"\b(?:INFO|DEBUG|WARN(?:ING)?)\b")
#: NCCL and c10d warn of what kills them, so their level says nothing.
_LOUD = re.compile(r"NCCL WARN|ProcessGroupNCCL|TCPStore|socket\.cpp|\bWatchdog caught\b|elastic/")
_DEALT = re.compile(r"\b(?:skipping|ignoring|[Ff]alling back|will be (?:skipped|ignored))\b|, using [\w.\- ]{1,40}$")
#: A word of prose; and what stands before the words of an exception or of a failed call.
_PROSE = re.compile(r"(?<![\w.\-/])[a-z]{1,30}(?![\w\-/(=])")
_RAISES = re.compile(r"(?:Error|Exception|failure(?: \d{1,4})? ?)\(?$")
#: The line behind a failure says that it will be tried again.
_AGAIN = re.compile(
    r"\b[Rr]etry(?:ing)?\b|[Tt]rying to resume|\bretries left|[Tt]rying again|[Rr]econnecting|entering retry loop"
    r"|\b(?:[Cc]ontinuing|[Gg]oing on|[Pp]roceeding|[Cc]arrying on) (?:without|with|anyway|on)\b|\b[Ff]alling back\b"
)
_CHAIN = re.compile(r"During handling of the above exception|The above exception was the direct cause")
#: Words that chain tracebacks; a reader looks for them beside the literals of the rules.
CHAIN_LITERALS = ("During handling of the above exception", "The above exception was the direct cause")
#: Python tells of an exception that it threw away; the next one that is named is that one.
IGNORED = "Exception ignored in"


_NAMED = re.compile(
    r"(?:^|[\s\]:)|>\"'])[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit|Fault|Timeout)\b(?=[:(\s\"']|$)",
    re.ASCII,
)
#: What stands in one word before and behind a part of a path: a slash, and more of a name.
_PATH_HEAD = re.compile(r"/(?:[\w\-.=+]{0,100}[\-_.])?$", re.ASCII)
_PATH_TAIL = re.compile(r"[\w\-.=+]{0,100}[\-_/.]\w", re.ASCII)
_KEY_END = re.compile(r"[\w\-. ]{0,60}['\"]\s{0,4}:")
#: Text that a model reads or writes, printed beside what the program itself has to say.
_SAMPLE = re.compile(
    r"\b(?:sample|prompt|text|input|output|stdout|stderr|completion|response|question|answer|document|example|target|caption"
    r"|title|headline|article|summary"
    r"|instruction|reference|prediction|generated|decoded|content|query|label)s?(?:[ _]?(?:text|\d{1,9}))?"
    r"(?:\[\d{1,9}\])?['\"]?\s?[:=]\s?['\"]",
    re.IGNORECASE | re.ASCII,
)


#: A turn of a conversation that a model reads or writes.
_TURN = re.compile(
    r"^[^\w>]{0,8}(?:> ?)?(?:Prompt|Response|[Uu]ser|[Aa]ssistant|[Ss]ystem|[Hh]uman|Question"
    r"|Completion|Generat(?:ed|ion)|Sample|Q|A)"
    r"(?:[ #]{0,2}\d{1,9})?: |^> ?(?:Input|Output|Answer|Text)\b[^:\n]{0,12}: "
)
#: One of many tries that a search makes: that it fails ends nothing.
_TRIAL = re.compile(
    r"\b(?:[Tt]rial|[Ee]xperiment|[Rr]un|[Cc]andidate|[Cc]onfig(?:uration)?) #?\d{1,6}(?: of \d{1,6}|/\d{1,6})?"
    r" (?:has )?(?:failed|diverged|errored|crashed|pruned|ran out)\b"
)


def is_code(line: str) -> bool:
    """Is it program text or a printed configuration?"""
    return bool(_CODE.match(line))


def is_loud(line: str) -> bool:
    """Does it come from who warns of what kills it, whatever level it gives, and not of what it goes on without?"""
    return bool(_LOUD.search(line[:MAX_CHARS])) and not _DEALT.search(line[:MAX_CHARS])


def is_raised(line: str) -> bool:
    """Does it name an exception, as the end of a traceback does?"""
    return bool(_NAMED.search(line[:MAX_CHARS]))


def is_soft(line: str) -> bool:
    """Do its words say that somebody dealt with it, or that it is only told?"""
    return bool(_SOFT.search(line[:MAX_CHARS]) or _TRIAL.search(line[:MAX_CHARS]))


def is_past(text: str, start: int) -> bool:
    """Do the words before ``start`` say that it is of another time, or made up?"""
    return bool(_PAST.search(text[max(0, start - 400) : start]))


def by_level_only(text: str, start: int) -> bool:
    """Is the level before the words from ``start`` all that speaks of a matter dealt with?

    Who passes on what a tool or the kernel printed gives its own level.
    """
    text = text[:MAX_CHARS]
    return not _SOFT.search(_LEVEL.sub("", text[:start]) + text[start:]) and not _PAST.search(text[:start])


def in_path(text: str, start: int, end: int) -> bool:
    """Is a word from ``start`` to ``end`` only a part of a path or of a file's name?"""
    if any(c.isspace() for c in text[start:end]):
        return False
    head, tail = _PATH_HEAD.search(text[max(0, start - 400) : start]), _PATH_TAIL.match(text[end : end + 200])
    return head is not None and tail is not None


def is_key(text: str, end: int) -> bool:
    """Do the words up to ``end`` stand in a key of a JSON record, as of a configuration that is printed?"""
    return text.startswith("{") and bool(_KEY_END.match(text, end))


def in_sample(text: str, start: int) -> bool:
    """Do the words from ``start`` stand in a quoted text that a model reads or writes?"""
    before = text[max(0, start - 2000) : start]
    if _TURN.match(text):
        return True
    opened = [found.end() for found in _SAMPLE.finditer(before)]
    return bool(opened) and before[opened[-1] - 1] not in before[opened[-1] :]


def told(text: str, start: int, end: int) -> bool:
    """Are the words from ``start`` to ``end`` only quoted, or a part of prose, and so nobody's report of a fault?

    A report stands behind a colon or at the beginning, and ends there; what people write has words on both sides.
    """
    before = text[max(0, start - 400) : start]
    for quote in "\"'`":
        opened = [at for at in range(len(before)) if before[at] == quote and _opens(before, at)]
        closed = opened and any(before[at] == quote for at in range(opened[-1] + 1, len(before)))
        if opened and not closed and quote in text[end : end + 400]:
            return True
    if _PAST.search(before):
        return True
    if "NVRM" in before[-200:]:
        return False
    ahead = re.split(r"[:|\]]|[.?!;] ", before)[-1]
    behind = re.split(r"[.;,:!?()\[\]]", text[end : end + 200], maxsplit=1)[0]
    return len(_PROSE.findall(ahead)) > 3 or len(_PROSE.findall(behind)) > 4


def _opens(text: str, at: int) -> bool:
    """Does a quote open here? Not one within a word, nor the one of an exception's own words."""
    return not text[at - 1 : at].isalnum() and not _RAISES.search(text[max(0, at - 40) : at])


def kept(line: str) -> str:
    """Printable, on one line, short."""
    return "".join(c if c.isprintable() else " " for c in line[:KEPT_CHARS]).strip()


def chains(line: str) -> bool:
    """True for the line between two tracebacks of one failure."""
    return bool(_CHAIN.search(line[:MAX_CHARS]))


def tried_again(lines: str) -> bool:
    """Do the lines right behind a failure say that it will be tried again?"""
    return bool(_AGAIN.search(lines[:MAX_CHARS]))


#: The last line of a traceback, where nothing is indented: the name of an exception and what it says.
_RAISED = re.compile(
    r"(?:\S{1,80} ){0,4}[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit|Warning|Timeout)\b(?::|\s|$)"
)


def quoted(before: str, line: str) -> bool:
    """Is a line a source line that a traceback quotes under its ``File "x", line 3``?

    Such a line is indented deeper than the one before it. Where the source is not at hand (compiled, ``<stdin>``) the
    exception itself stands there.
    """
    at = before.find('File "')
    if at < 0 or '", line ' not in before:
        return False
    if before[max(0, at - 2) : at] == "  ":
        return line[at : at + 1].isspace()
    return not _RAISED.match(line)


_STEP = re.compile(
    r"\b(?:global_?step|step|iter(?:ation)?|update|num_updates|batch)s?\b['\"]?\s{0,4}[:=\[#|]?\s{0,4}\[?(\d{1,12})"
    r"[^\n]{0,120}?(?:loss|ppl|lr\b|tok|it/s|s/it|ms\b|samples|time|acc|grad|\d%)",
    re.ASCII | re.IGNORECASE,
)
#: ``[120/9000] loss=2.1``: so many of so many, with a figure of training behind.
_OF = re.compile(
    r"(?:^|[\s\[(])(\d{1,9}) ?/ ?\d{1,9}[\])]?[^\n]{0,60}?"
    r"\b(?:loss|lm_loss|acc\w{0,5}|ppl|lr|tok(?:ens)?/s|it/s|samples/s)\b",
    re.ASCII | re.IGNORECASE,
)
#: Where a line counts no steps it may count epochs.
_EPOCH = re.compile(
    r"\bepoch['\"]?\s{0,4}[:=\[#|]?\s{0,4}\[?(\d{1,6})[^\n]{0,120}?(?:loss|acc|ppl|lr\b|wer|bleu|auc|f1|mse|mae|map)\b",
    re.ASCII | re.IGNORECASE,
)
_NAN = re.compile(r"(?:loss|norm)['\"]?\s{0,3}[:=]?\s{0,4}['\"]?nan\b", re.ASCII | re.IGNORECASE)
_BAR = re.compile(r"\d{1,3}%\|[^\n|]{0,200}\|\s{0,4}(\d{1,12})/\d{1,12}|'loss': [\d.]{1,24}", re.ASCII)
_DONE = re.compile(
    r"(?:[Tt]raining|[Tt]rain|[Rr]un|[Jj]ob|[Ff]ine-?tuning|[Pp]retraining|[Ee]valuation|[Ee]xperiment|[Ss]cript"
    r"|[Gg]eneration|[Ii]nference|[Ww]orker group)"
    r"(?: is| has| was| run| job| loop)?(?: been)? (?:successfully )?(?:completed?|finished|done|succeeded"
    r"|ended (?:well|successfully))"
    r"|\b(?:[Ff]inished|[Cc]ompleted) (?:the )?(?:training|run|job|fine-?tuning|successfully|all)\b"
    r"|[Aa]ll done\b|^\s*(?:[Dd]one|DONE|SUCCESS"
    r"|Finished)\b(?!:)"
    r"|\*{3,} train metrics \*{3,}|['\"]?train_runtime['\"]?\s*[:=]|max_(?:steps|epochs)=[-\d]+` reached"
    r"|\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]+0\b|State=COMPLETED|\bCOMPLETED\b|[Ss]ucceeded\b"
    r"|exit(?:ed|ing) (?:normally|cleanly)"
    r"|[Ss]aved (?:the )?final (?:model|checkpoint)|Total training time|training took"
    r"|peak memory (?:consumption|usage)",
    re.ASCII,
)
_NOT_DONE = re.compile(
    r"\b(?:not|never|fail\w*|error|abort\w*|un|in)[ -]?(?:completed?|finished|done|succeed\w*)"
    r"|[Ee]poch \d+(?:/\d+)? (?:done|finished|complete)|"
    r"\b(?:step|iteration|batch|shard) \d+ (?:done|finished|complete)",
    re.ASCII,
)


def step_of(line: str) -> int | None:
    """Number of the training step a line tells of, -1 for one without a number, None for any other line: a step
    whose loss or gradient is no number is no sign of life."""
    line = line[:1000]
    if _NAN.search(line):
        return None
    bar = _BAR.search(line)
    if bar:
        return int(bar[1]) if bar[1] else -1
    found = _STEP.search(line) or _EPOCH.search(line) or _OF.search(line)
    return int(found[1]) if found else None


def ended(line: str) -> bool:
    """Does a line say that the job ended well?"""
    line = line[:1000]
    return bool(_DONE.search(line)) and not _NOT_DONE.search(line)
