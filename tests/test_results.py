"""Results are read from sweeps and runs, and importing the package starts nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import mara_ray
from mara_ray.errors import UserError


def test_importing_the_package_imports_neither_ray_nor_pandas() -> None:
    code = "import sys, mara_ray; mara_ray.load_results; print({'ray', 'pandas', 'torch'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"


def test_results_of_a_sweep_a_run_and_a_file(tmp_path: Path) -> None:
    rows = pd.DataFrame({"cell": ["base"], "completed": [3]})
    rows.attrs = {"axes": ["seed"]}
    (tmp_path / "run" / "evaluation").mkdir(parents=True)
    rows.to_parquet(tmp_path / "results.parquet")
    rows.drop(columns="cell").to_parquet(tmp_path / "run" / "evaluation" / "episodes.parquet")
    found = mara_ray.load_results(tmp_path)
    assert found.attrs == {"axes": ["seed"]}
    pd.testing.assert_frame_equal(found, rows)
    pd.testing.assert_frame_equal(mara_ray.load_results(tmp_path / "results.parquet"), rows)
    assert list(mara_ray.load_results(str(tmp_path / "run")).columns) == ["completed"]
    (tmp_path / "results.parquet").write_text("junk")
    with pytest.raises(UserError, match=r"^results: .* is damaged; run what made it again"):
        mara_ray.load_results(tmp_path)
    with pytest.raises(UserError, match=r"^results: .* holds none; let `mara sweep`"):
        mara_ray.load_results(tmp_path / "run" / "evaluation" / "nothing")
