"""The life of one tick, in order: read this file and you have seen the product."""
