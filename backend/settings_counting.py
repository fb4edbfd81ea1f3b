"""The sections about what failures cost: how far back it is counted, who is told weekly, what becomes of old rows."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from backend.settings_file import Section

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class Reliability(Section):
    every_s: float = Field(
        60.0,
        ge=5,
        description="How often what failures cost is counted anew; it takes a twentieth of one core at most.",
    )
    days: int = Field(90, ge=1, le=400, description="How far back it is counted, in days.")
    most_attempts: int = Field(
        200_000, ge=100, description="Attempts that are counted at most; of more only the newest, and pages say so."
    )
    gpu_hour_price: float = Field(0.0, ge=0, description="What one GPU-hour costs; 0: losses are told in hours only.")
    storage_write_gb_s: float = Field(
        0.0, ge=0, description="What the storage can write, in GB/s; 0: not known. Saves are told as a share of it."
    )
    storage_read_gb_s: float = Field(
        0.0, ge=0, description="What the storage can read, in GB/s; 0: not known. Loads are told as a share of it."
    )
    currency: str = Field("USD", max_length=8, description="The currency of that price.")


class Report(Section):
    weekly: bool = Field(False, description="Send a weekly report by mail and Slack.")
    weekday: Weekday = Field("monday", description="On which day.")
    hour: int = Field(8, ge=0, le=23, description="At which hour of that day.")
    timezone: str = Field("UTC", description="Zone of that hour, as in Europe/Berlin.")

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            raise ValueError(f"is no time zone that this machine knows: {name!r}") from None
        return name


class Archive(Section):
    folder: Path | None = Field(
        None,
        description="Where old findings and events go as Parquet before they are deleted. Needs the extra archive.",
    )
    keep_days: int = Field(0, ge=0, description="Age at which they go, in days; 0 keeps them in the database for ever.")
