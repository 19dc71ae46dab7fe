"""ForecastTable: every prefix of a frozen bank, predicted once, so that a simulator step only gathers.

Axis letters: C curves, L points, G target levels, N samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from mara_ray.artifacts import hash_of, read_json, write_json, written_whole
from mara_ray.curves.bank import CurveBank, first_crossing
from mara_ray.errors import UserError
from mara_ray.progress import Report

CURVES_PER_CHUNK = 4  # keeps the float64 work of one chunk within the cache-friendly tens of megabytes
REMEDY = "make it again with `mara predictor train`"


class CurvePredictor(Protocol):
    """The half of a `Predictor` that a table needs."""

    @property
    def name(self) -> str:
        """How it is known."""
        ...

    @property
    def num_samples(self) -> int:
        """Samples N of one forecast."""
        ...

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on."""
        ...

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """See `Predictor.predict_curves`."""
        ...


class OraclePredictor:
    """The true remaining steps: a reference that no allocator of the real world has.

    It reads the future of the curve, so it offers no live `predict`.
    """

    name = "oracle"
    num_samples = 1
    content_hash = hash_of("oracle")

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """Steps still needed from every prefix, the remaining cap if the target is never met."""
        length = ema_CL.shape[1]
        seen_L1 = np.arange(1, length + 1)[:, None]
        needed_C1G = first_crossing(ema_CL, target_CG)[:, None]
        return np.clip(needed_C1G - seen_L1, 0, length - seen_L1).astype(np.uint16)[..., None]


@dataclass(frozen=True)
class ForecastTable:
    """Forecasts of one predictor for every (curve, points seen, target level) of a bank.

    Attributes:
        name: the predictor's name.
        steps_CLGN: uint16, sorted along N; entry n - 1 on the point axis is the forecast at n points seen.
        bank_hash, predictor_hash: what it was built from.
    """

    name: str
    steps_CLGN: np.ndarray
    bank_hash: str
    predictor_hash: str

    @property
    def num_samples(self) -> int:
        """Samples N of one forecast."""
        return int(self.steps_CLGN.shape[3])

    def lookup(self, curve: np.ndarray, num_seen: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Forecast steps still needed, float32 (..., N); the arguments broadcast, `num_seen` is 1..L."""
        return self.steps_CLGN[curve, np.asarray(num_seen) - 1, level].astype(np.float32)

    @classmethod
    def of(cls, predictor: CurvePredictor, bank: CurveBank, target_CG: np.ndarray) -> ForecastTable:
        """Predict the whole bank, in memory: for predictors that are quick."""
        steps_CLGN = predictor.predict_curves(bank.ema_CL, target_CG)
        return cls(predictor.name, steps_CLGN, bank.content_hash, predictor.content_hash)

    @classmethod
    def build(
        cls,
        predictor: CurvePredictor,
        bank: CurveBank,
        target_CG: np.ndarray,
        directory: Path,
        progress: Report,
    ) -> ForecastTable:
        """Predict the whole bank, write the table to `directory`, and open it.

        Raises:
            UserError: the directory cannot be written.
            MachineError: the disk is full.
        """
        num_curves, length = bank.ema_CL.shape
        shape = (num_curves, length, target_CG.shape[1], predictor.num_samples)
        with written_whole(directory) as temporary:
            temporary.mkdir(parents=True)
            steps_CLGN = np.lib.format.open_memmap(temporary / "steps.npy", "w+", np.uint16, shape)
            for first in range(0, num_curves, CURVES_PER_CHUNK):
                chunk = slice(first, first + CURVES_PER_CHUNK)
                steps_CLGN[chunk] = predictor.predict_curves(bank.ema_CL[chunk], target_CG[chunk])
                progress(min(first + CURVES_PER_CHUNK, num_curves), num_curves, f"{predictor.name} forecasts")
            steps_CLGN.flush()
            facts = {
                "name": predictor.name,
                "shape": shape,
                "bank_hash": bank.content_hash,
                "predictor_hash": predictor.content_hash,
            }
            write_json(temporary / "table.json", facts)
        return cls.load(directory)

    @classmethod
    def load(cls, directory: Path) -> ForecastTable:
        """Open a table; the forecasts stay on disk, memory-mapped.

        Raises:
            UserError: a file is missing or damaged.
        """
        facts = read_json(directory / "table.json")
        try:
            steps_CLGN = np.asarray(np.load(directory / "steps.npy", mmap_mode="r"))
            whole = steps_CLGN.dtype == np.uint16 and list(steps_CLGN.shape) == facts["shape"]
            hashes = facts["bank_hash"], facts["predictor_hash"]
            name = facts["name"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"forecast table: {directory} is damaged ({error}); {REMEDY}") from error
        if not whole:
            raise UserError(f"forecast table: {directory}/steps.npy does not fit its table.json; {REMEDY}")
        return cls(name, steps_CLGN, *hashes)
