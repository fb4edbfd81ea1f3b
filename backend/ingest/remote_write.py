"""Prometheus remote write 1.0: a snappy block holding a protobuf WriteRequest becomes a Batch."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import cramjam
import numpy as np

from backend.facts import Batch, DeviceLabel
from backend.ingest import protobuf, wire
from backend.ingest.base import SourceError
from backend.ingest.labels import Targets
from backend.ingest.protobuf import CHUNK, FIXED64, VARINT, Malformed
from backend.ingest.pushes import Pushes, dropped_of
from backend.ingest.samples import Scraped, assemble
from backend.ingest.versions import versions_of
from detectors.catalogue import Catalogue

#: Most of one push; senders send thousands. Repeats compress so well that a small block may hold what fills a machine.
MAX_SERIES, MAX_SAMPLES, MAX_LABELS = 250_000, 500_000, 200


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
    if pushes is None:
        return _batch(*_request(_unpacked(body, max_bytes).data), catalogue, targets)
    with pushes.lock:  # what it works with is used again by the next push
        raw = _unpacked(body, max_bytes, pushes)
        walked = _walked(raw, pushes)
        if walked is None:
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
    words = pushes.room("raw", np.uint64, raw.size // 8 + 3)
    spans = pushes.room("spans", np.int64, 2 * many).reshape(-1, 2)
    hashes = pushes.room("hashes", np.uint64, 2 * many).reshape(-1, 2)
    firsts = pushes.room("firsts", np.int64, many + 1)
    for size in (many + 64, min(MAX_SAMPLES, raw.size // 4 + 1)):
        times, bits = pushes.room("times", np.float64, size), pushes.room("bits", np.uint64, size)
        found = wire.walk(raw, words, pushes.seed, MAX_LABELS, (spans, hashes, firsts, times, bits))
        if found != -2:
            return None if found < 0 else _Walked(spans, hashes, firsts, times[:found], bits[:found])
    return None


def _known(
    raw: wire.Bytes, walked: _Walked, pushes: Pushes, catalogue: Catalogue, targets: Targets, now: float
) -> Batch:
    """Known series by number; the labels of the others are read and learnt, and told as news."""
    series = pushes.find(walked.hashes)
    fates = pushes.route(series, walked.firsts, walked.times, now)
    asked = np.flatnonzero(fates == wire.SLOW)
    scraped, unreadable = _read(raw, walked, asked, series, pushes, now)
    labels: tuple[DeviceLabel, ...] = ()
    if scraped:
        fates = pushes.route(series, walked.firsts, walked.times, now)
        labels = pushes.news(series, fates, list(scraped))
        targets.learn(pushes.seen(scraped.values(), labels))
    columns, counts = pushes.columns(series, fates, walked.firsts, walked.times, walked.bits, now)
    pushes.forget(now)
    batch = _batch([one for place, one in scraped.items() if fates[place] == wire.SLOW], unreadable, catalogue, targets)
    news = [one for place, one in scraped.items() if fates[place] != wire.SLOW]
    last = max(batch.end, float(columns.times.max(initial=0.0)))
    dropped = Counter(dropped_of(counts.tolist())) + Counter(batch.dropped)
    versions = batch.versions + versions_of(news, catalogue, targets)
    columns = replace(columns, labels=labels)
    return replace(batch, start=last, end=last, dropped=dropped, columns=columns, versions=versions)


def _read(
    raw: wire.Bytes, walked: _Walked, which: wire.Places, series: wire.Ids, pushes: Pushes, now: float
) -> tuple[dict[int, Scraped], int]:
    """The series at these places by their labels, as ``_request`` reads them, and how many have a label that is no
    text. What they say is learnt; ``series`` holds their numbers then."""
    scraped: dict[int, Scraped] = {}
    unreadable = 0
    known: dict[bytes, tuple[str, str]] = {}
    spans = np.empty((MAX_LABELS, 2), np.int64)
    values = walked.bits.view(np.float64)
    for place in which.tolist():
        first, last = walked.firsts[place : place + 2].tolist()
        if first == last:
            continue
        try:
            labels = _labels(raw, walked.spans[place].tolist(), known, spans)
        except UnicodeDecodeError:
            unreadable += 1
            continue
        scraped[place] = (labels, *_in_order(walked.times[first:last], values[first:last]))
        one, two = walked.hashes[place].tolist()
        if two:
            series[place] = pushes.learn((one, two), int(series[place]), labels, now)
    return scraped, unreadable


def _labels(
    raw: wire.Bytes, span: list[int], known: dict[bytes, tuple[str, str]], spans: wire.Places
) -> dict[str, str]:
    """Raises UnicodeDecodeError."""
    labels: dict[str, str] = {}
    start, end = span
    said = raw[start:end].tobytes()
    for first, last in spans[: wire.labels_in(raw, start, end, spans)].tolist():
        one = said[first - start : last - start]
        pair = known.get(one)
        if pair is None:
            pair = known[one] = _label(memoryview(one), 0, len(one))
        labels[pair[0]] = pair[1]
    return labels


def _in_order(times: wire.Floats, values: wire.Floats) -> tuple[wire.Floats, wire.Floats]:
    """By time, each instant once, the first that came for it."""
    if times.size > 1 and np.any(np.diff(times) <= 0):
        _, kept = np.unique(times, return_index=True)
        return times[kept], values[kept]
    return times, values


def unpacked(body: bytes, max_bytes: int) -> bytes:
    """The block without its snappy coat. The length that it declares is believed only as a reason to refuse."""
    return _unpacked(body, max_bytes).tobytes()


def _unpacked(body: bytes, max_bytes: int, pushes: Pushes | None = None) -> wire.Bytes:
    """The same as uint8[n]; with ``pushes`` in their room for it, words of which two are to spare."""
    try:
        size, _ = protobuf.varint(memoryview(body), 0, len(body), "the snappy length")
    except Malformed as error:
        raise _malformed(error) from error
    if size > max_bytes:
        raise _bad(f"the block would unpack to {size} bytes, the limit is {max_bytes}", 0, _SMALLER)
    words = np.empty(size // 8 + 3, np.uint64) if pushes is None else pushes.room("raw", np.uint64, size // 8 + 3)
    whole = words.view(np.uint8)
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


def _malformed(error: Malformed) -> SourceError:
    return _bad(error.what, error.at, "Send it again, whole." if error.cut else _ONE)


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
    return labels, *_in_order(both[:, 0].copy(), both[:, 1].copy())


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


def _fields(raw: memoryview, at: int, end: int) -> Iterator[protobuf.Field]:
    """The fields of one message: (number, wire type, start, end). For a varint ``end`` is its value."""
    try:
        yield from protobuf.spans(raw, at, end)
    except Malformed as error:
        raise _malformed(error) from error
