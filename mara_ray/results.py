"""Results of sweeps and runs as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mara_ray.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

RESULTS_FILE = "results.parquet"


def load_results(path: str | Path) -> pd.DataFrame:
    """Read the rows of a sweep, or of a run.

    Rows of a sweep have the columns `sweep`, `cell` and one for each axis of the grid, named as there. Then:
    a row is an episode of a method (kind `evaluation`; columns of `evaluation.metrics.episode_rows`; `play`
    has `workload`, too), the errors of a `predictor` on a `set` (kind `forecasts`), or what a `setting` at a
    `value` comes to in an ablation of the predictor. Completion is sum(completed) / sum(tasks).

    Args:
        path: the file, or the directory of a sweep or a run.

    Returns:
        The rows. `attrs` of a sweep's tell its `kind`, `axes`, what it is `about`, and from which hashes each
        cell was `made_from`.

    Raises:
        UserError: there are no results, or they are damaged.
    """
    import pandas as pd  # late, so that importing mara_ray stays quick

    path = Path(path)
    candidates = (path / RESULTS_FILE, path / "evaluation" / "episodes.parquet") if path.is_dir() else (path,)
    for file in candidates:
        if file.is_file():
            try:
                return pd.read_parquet(file)
            except (OSError, ValueError) as error:  # Arrow's errors are of these kinds
                raise UserError(f"results: {file} is damaged; run what made it again") from error
    raise UserError(f"results: {path} holds none; let `mara sweep` or `mara run` end first")
