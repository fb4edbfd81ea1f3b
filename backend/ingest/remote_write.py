"""Prometheus remote write 1.0: a snappy block holding a protobuf WriteRequest becomes a Batch."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import cramjam
import numpy as np

from backend.facts import Batch
from backend.ingest import wire
from backend.ingest.base import SourceError
from backend.ingest.labels import Targets
from backend.ingest.pushes import Pushes, dropped_of
from backend.ingest.samples import Scraped, assemble
from backend.ingest.versions import versions_of
from detectors.catalogue import Catalogue

#: A varint of 64 bits has at most this many bytes (protobuf encoding guide).
VARINT_BYTES = 10
#: Most of one push; senders send thousands. Repeats compress so well that a small block may hold what fills a machine.
MAX_SERIES, MAX_SAMPLES, MAX_LABELS = 250_000, 500_000, 200
VARINT, FIXED64, CHUNK, FIXED32 = 0, 1, 2, 5
Field = tuple[int, int, int, int]


def decode(
    body: bytes,
    catalogue: Catalogue,
    max_bytes: int,
    targets: Targets | None = None,
    pushes: Pushes | None = None,
    now: float = 0.0,
) -> Batch:
    """The Batch of one push; its span is one instant, as a push covers no time: what it leaves out may come by itself.

    max_bytes: largest size after decompression; a larger one is refused before anything is unpacked. ``targets``
    carries what earlier pushes told about who stands behind which exporter; ``pushes`` which series is whose at ``now``
    (unix s): samples of series that it knows come as ``columns``, without their labels being read again. Raises
    SourceError(permanent=True) that says what is wrong at which byte.
    """
    targets = targets or Targets()
    raw = _unpacked(body, max_bytes)
    walked = _walked(raw, pushes) if pushes is not None else None
    if pushes is None or walked is None:
        return _batch(*_request(raw.data), catalogue, targets)
    return _known(raw, walked, pushes, catalogue, targets, now)


def _batch(scraped: list[Scraped], unreadable: int, catalogue: Catalogue, targets: Targets) -> Batch:
    series, dropped = assemble(scraped, catalogue, targets)
    if unreadable:
        dropped["label that is not UTF-8"] += unreadable
    last = max((float(one.times[-1]) for one in series), default=0.0)
    versions = versions_of(scraped, catalogue, targets)
    return Batch("remote_write", last, last, series, dropped=dropped, versions=versions)


@dataclass(frozen=True, slots=True, eq=False)
class _Walked:
    """Every series of a request: where it stands (int64[m, 2]), the hash of its labels (uint64[m, 2]), where its
    samples begin (int64[m + 1]), and the times and bits of all samples."""

    spans: wire.Places
    hashes: wire.Words
    firsts: wire.Places
    times: wire.Floats
    bits: wire.Words


def _walked(raw: wire.Bytes, pushes: Pushes) -> _Walked | None:
    """None for a request that is odd in any way: it is read by ``_request``, which says how."""
    many = wire.count(raw)
    if not 0 < many <= MAX_SERIES:
        return None
    words = np.asarray(raw.base).view(np.uint64)
    spans, hashes = np.empty((many, 2), np.int64), np.empty((many, 2), np.uint64)
    firsts = np.empty(many + 1, np.int64)
    for room in (many + 64, min(MAX_SAMPLES, raw.size // 4 + 1)):
        times, bits = np.empty(room), np.empty(room, np.uint64)
        found = wire.walk(raw, words, pushes.seed, MAX_LABELS, spans, hashes, firsts, times, bits)
        if found != -2:
            return None if found < 0 else _Walked(spans, hashes, firsts, times[:found], bits[:found])
    return None


def _known(
    raw: wire.Bytes, walked: _Walked, pushes: Pushes, catalogue: Catalogue, targets: Targets, now: float
) -> Batch:
    """Known series by number, the others by their labels, which are learnt for the next time."""
    with pushes.lock:
        series = pushes.find(walked.hashes)
        fates = pushes.route(series, walked.firsts, walked.times, now)
        columns, counts = pushes.columns(series, fates, walked.firsts, walked.times, walked.bits, now)
        scraped, unreadable = _read(raw, walked, np.flatnonzero(fates == wire.SLOW), series, pushes, now)
    batch = _batch(scraped, unreadable, catalogue, targets)
    last = max(batch.end, float(columns.times.max(initial=0.0)))
    dropped = Counter(dropped_of(counts.tolist())) + Counter(batch.dropped)
    return replace(batch, start=last, end=last, dropped=dropped, columns=columns)


def _read(
    raw: wire.Bytes, walked: _Walked, which: wire.Places, series: wire.Ids, pushes: Pushes, now: float
) -> tuple[list[Scraped], int]:
    """The series at these places by their labels, as ``_request`` reads them."""
    scraped: list[Scraped] = []
    unreadable = 0
    known: dict[bytes, tuple[str, str]] = {}
    view = raw.data
    for place in which.tolist():
        start, end = walked.spans[place].tolist()
        try:
            one = _series(view, start, end, known)
        except UnicodeDecodeError:
            unreadable += 1
            continue
        if one is None:
            continue
        scraped.append(one)
        one_, two = walked.hashes[place].tolist()
        if two:
            pushes.learn((one_, two), int(series[place]), one[0], now)
    if which.size:
        pushes.forget(now)
    return scraped, unreadable


def unpacked(body: bytes, max_bytes: int) -> bytes:
    """The block without its snappy coat. The length that it declares is believed only as a reason to refuse."""
    return _unpacked(body, max_bytes).tobytes()


def _unpacked(body: bytes, max_bytes: int) -> wire.Bytes:
    """The same as uint8[n], the beginning of an array of whole words with one to spare."""
    size, _ = _varint(memoryview(body), 0, len(body), "the snappy length")
    if size > max_bytes:
        raise _bad(f"the block would unpack to {size} bytes, the limit is {max_bytes}", 0, _SMALLER)
    whole = np.empty(8 * (size // 8 + 2), np.uint8)
    try:
        found = cramjam.snappy.decompress_raw_into(body, whole.data)
    except cramjam.DecompressionError as error:
        raise _bad(f"no snappy block ({error})", 0, "Send Content-Encoding: snappy, in block format.") from error
    if found != size:
        raise _bad(f"the block declares {size} bytes and holds {found}", 0, "Send it again.")
    return whole[:size]


_SMALLER = "Lower max_samples_per_send, or raise [server] max_body_bytes."
_ONE = "Send remote write 1.0: Content-Type application/x-protobuf, message prometheus.WriteRequest."


def _bad(what: str, at: int, fix: str) -> SourceError:
    return SourceError(f"remote write, byte {at}: {what}. {fix}", permanent=True)


def _request(raw: memoryview) -> tuple[list[Scraped], int]:
    """Series of a WriteRequest, and how many had a label that is no text. Metadata and the like are skipped."""
    scraped: list[Scraped] = []
    unreadable = count = samples = 0
    known: dict[bytes, tuple[str, str]] = {}  # a push says the same few labels thousands of times
    others: set[int] = set()
    for number, kind, start, end in _fields(raw, 0, len(raw)):
        if number != 1 or kind != CHUNK:
            others.add(number)
            continue
        count += 1
        try:
            one = _series(raw, start, end, known)
        except UnicodeDecodeError:
            unreadable += 1
            continue
        if one is not None:
            scraped.append(one)
            samples += one[1].size
        if count > MAX_SERIES or samples > MAX_SAMPLES:
            raise _bad(f"more than {MAX_SERIES} series or {MAX_SAMPLES} samples", start, _SMALLER)
    if not scraped and 5 in others:
        raise _bad("this is a remote write 2.0 message", 0, _ONE)
    return scraped, unreadable


def _series(raw: memoryview, start: int, end: int, known: dict[bytes, tuple[str, str]]) -> Scraped | None:
    """One TimeSeries: labels = 1, samples = 2; exemplars and histograms are not ours. None without samples."""
    labels: dict[str, str] = {}
    samples: list[tuple[float, float]] = []
    said_labels = 0
    for number, kind, first, last in _fields(raw, start, end):
        if kind != CHUNK:
            continue
        if number == 1:
            said_labels += 1
            said = bytes(raw[first:last])
            pair = known.get(said)
            if pair is None:
                pair = known[said] = _label(raw, first, last)
            labels[pair[0]] = pair[1]
        elif number == 2:
            samples.append(_sample(raw, first, last))
        if len(samples) > MAX_SAMPLES or said_labels > MAX_LABELS:
            raise _bad(f"one series with more than {MAX_SAMPLES} samples or {MAX_LABELS} labels", start, _SMALLER)
    if not samples:
        return None
    both = np.array(samples, np.float64)
    if both.shape[0] > 1 and np.any(np.diff(both[:, 0]) <= 0):
        _, kept = np.unique(both[:, 0], return_index=True)
        both = both[kept]
    return labels, both[:, 0].copy(), both[:, 1].copy()


def _label(raw: memoryview, start: int, end: int) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for number, kind, first, last in _fields(raw, start, end):
        if kind == CHUNK and number in texts:
            texts[number] = str(raw[first:last], "utf-8")
    return texts[1], texts[2]


def _sample(raw: memoryview, start: int, end: int) -> tuple[float, float]:
    """(time in unix s, value); proto3 leaves out what is zero."""
    value, time_ms = 0.0, 0
    for number, kind, first, last in _fields(raw, start, end):
        if number == 1 and kind == FIXED64:
            value = struct.unpack_from("<d", raw, first)[0]
        elif number == 2 and kind == VARINT:
            time_ms = last - (1 << 64) if last >> 63 else last
    return time_ms / 1000.0, value


def _fields(raw: memoryview, at: int, end: int) -> Iterator[Field]:
    """The fields of one message: (number, wire type, start, end). For a varint ``end`` is its value."""
    while at < end:
        begin = at
        tag, at = _varint(raw, at, end, "a field's tag")
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise _bad("field number 0", begin, _ONE)
        if kind == VARINT:
            start = at
            value, at = _varint(raw, at, end, f"field {number}")
            yield number, kind, start, value
            continue
        if kind == CHUNK:
            size, at = _varint(raw, at, end, f"the length of field {number}")
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise _bad(f"wire type {kind}", begin, _ONE)
        if size > end - at:
            raise _bad(f"field {number} needs {size} bytes and {end - at} are left", begin, "Send it again, whole.")
        yield number, kind, at, at + size
        at += size


def _varint(raw: memoryview, at: int, end: int, what: str) -> tuple[int, int]:
    """(value below 2^64, position after it)."""
    begin, value = at, 0
    for shift in range(0, 7 * VARINT_BYTES, 7):
        if at >= end:
            raise _bad(f"{what} is cut off", begin, "Send it again, whole.")
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise _bad(f"{what} is no varint", begin, _ONE)
