"""AMD's hardware events by number: AFID, as its tools and exporters print them of a record of the firmware (CPER)."""

from __future__ import annotations

import re

from detectors.kernel.code import KernelCode, kept, normal_pci
from detectors.kernel.head import KERNEL, starts

LITERALS = ("AFID", "afid")
#: Who prints them besides the kernel: AMD's tools, its exporter and agent.
PROGRAMS = KERNEL | {"amd-smi", "amdsmi", "amdgpuhealth", "gpuagent", "device-metrics-exporter", "amd-metrics-exporter"}
_AFID = re.compile(
    r"\bafid(?:s|[_ ]list|s_list)?\b[\"'\s:=#(\[]{1,6}(\d{1,5}(?:[,\s]{1,3}\d{1,5}){0,11})(?![\w.])", re.IGNORECASE
)
#: The severities of a CPER (UEFI 2.10, appendix N): what was not corrected is fatal, or recoverable.
_FATAL = re.compile(r"\b(?:fatal|critical)\b(?<!non-fatal)(?<!nonfatal)", re.IGNORECASE)
_CORRECTED = re.compile(r"\b(?:corrected|informational|info)\b(?<!uncorrected)", re.IGNORECASE)
_NOT = re.compile(r"\b(?:non-?fatal|not fatal|uncorrected)\b", re.IGNORECASE)
_GPU = re.compile(r"\bgpu[ _]?(?:id)?[\"'\s:=#]{0,4}(\d{1,3})\b", re.IGNORECASE)
#: How much of a line is looked at from where its message begins, in characters.
_LOOKED_AT = 600


def read(line: str) -> KernelCode | None:
    """The first AFID of one line. attrs: severity (fatal, nonfatal, harmless for what was corrected) as far as the line
    says it, gpu (the index that the tool prints), afids (all of them, where there are more)."""
    for at, program in starts(line):
        if program not in PROGRAMS:
            continue
        text = line[at : at + _LOOKED_AT]
        found = _AFID.search(text)
        if found is None or not text.lower().startswith(("amd", "gpu", "ras", "afid", "{", "cper")) and not program:
            continue
        numbers = re.findall(r"\d+", found[1])
        attrs = {"severity": word} if (word := _severity(text)) else {}
        if gpu := _GPU.search(text):
            attrs["gpu"] = gpu[1]
        if len(numbers) > 1:
            attrs["afids"] = " ".join(numbers)
        return KernelCode("afid", str(int(numbers[0])), normal_pci(text[: found.start()]), kept(line[at:]), attrs)
    return None


def _severity(text: str) -> str:
    if _NOT.search(text):
        return "nonfatal"
    if _FATAL.search(text):
        return "fatal"
    return "harmless" if _CORRECTED.search(text) else ""
