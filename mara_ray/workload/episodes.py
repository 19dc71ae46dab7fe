"""Workloads: which task arrives when, on which curve, with what target and deadline."""
