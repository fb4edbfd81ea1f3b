"""What changed, for people who wait: a numbered feed behind SSE and long-poll."""
