"""A slow job and the GPU that slows it, as findings."""

from __future__ import annotations

from detectors.model import Entity, Evidence, Finding, Severity
from detectors.wording import number, subject

#: One family alone: told, not acted on.
GPU_SCORE, JOB_SCORE = 0.65, 0.5


def slow_gpu(detector: str, gpu: Entity, since: float, own: float, others: float, usual_w: float) -> Finding:
    """own, others: its power, and the middle of its job's, as shares of what each usually draws in this job."""
    how = "is as busy as ever" if own > others else "does less than the others"
    reason = (
        f"{subject(gpu)} {how} ({number(100 * own)} % of its usual power) while its job has slowed down and its peers "
        f"draw {number(100 * others)} % of theirs: they wait for it."
    )
    evidence = (
        Evidence("own power", number(own * usual_w), number(usual_w), "W", "metric:gpu/power_w", "derived"),
        Evidence("peers' power, share of usual", number(100 * others), "100", "%", "metric:gpu/power_w", "derived"),
    )
    return Finding(detector, "silent_slow_gpu", gpu, Severity.HIGH, GPU_SCORE, since, reason, evidence)


def slow_job(detector: str, job: Entity, since: float, pace: float) -> Finding:
    """pace: link traffic of the job as a share of its usual."""
    reason = (
        f"{job} runs at {number(100 * pace)} % of its usual pace, by what goes over its links, and its GPUs draw less."
    )
    evidence = (
        Evidence("link traffic, share of usual", number(100 * pace), "100", "%", "metric:gpu/nvlink_bytes", "derived"),
    )
    return Finding(detector, "job_slow", job, Severity.WARNING, JOB_SCORE, since, reason, evidence)
