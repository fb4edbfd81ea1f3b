"""Settings to parts: the only file that names concrete classes."""
