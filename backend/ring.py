"""Tick assembly: lateness, counters to rates, "not due" against "missing"."""
