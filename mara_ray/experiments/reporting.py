"""What a run ends in: summary.json and report.html."""

from __future__ import annotations
