"""When things run: run_every(), and one step function per loop."""
