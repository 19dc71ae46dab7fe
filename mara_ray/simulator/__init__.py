"""Discrete nodes, vectorised over episodes."""
