"""Whole runs: stages, tracking, clusters."""
