"""Nodes, devices, allocations: who ran where, and the Fleet that detectors see."""
