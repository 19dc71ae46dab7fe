"""Embedded data of each modality, and the full real sets when they are there."""
