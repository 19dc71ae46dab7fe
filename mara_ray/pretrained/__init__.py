"""What ships trained: the standard bank, predictors and policies, each with the manifest that made it."""

from __future__ import annotations

from pathlib import Path

BANK = Path(__file__).parent / "bank" / "bank.parquet"
PREDICTOR = Path(__file__).parent / "predictor"
POLICIES = Path(__file__).parent / "policies"
RIVALS = Path(__file__).parent / "rivals"  # those of the predictor that must be trained
