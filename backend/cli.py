"""The command line: stdlib argparse, every import inside its branch, because `wrap` must start fast."""
