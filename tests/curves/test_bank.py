"""The bank's smoothing, crossings, targets and file: by hand-computed answers, and damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mara_ray.curves.bank import LOSS_FLOOR, NEVER, CurveBank, first_crossing, smooth
from mara_ray.errors import UserError


@pytest.fixture
def path(toy_bank: CurveBank, tmp_path: Path) -> Path:
    toy_bank.write(tmp_path / "bank.parquet")
    return tmp_path / "bank.parquet"


def test_smoothing_by_hand() -> None:
    smoothed_CL = smooth(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
    assert smoothed_CL[0].tolist() == pytest.approx([1.0, 0.29 / 0.19, 0.261 / 0.271])
    assert smoothed_CL[1].tolist() == pytest.approx([LOSS_FLOOR] * 3)
    assert smoothed_CL.dtype == np.float32


def test_smoothing_keeps_a_constant_and_looks_back_only() -> None:
    assert smooth(np.full((1, 9), 0.7))[0].tolist() == pytest.approx([0.7] * 9)
    raw_CL = np.random.default_rng(0).uniform(size=(3, 20))
    changed_CL = raw_CL.copy()
    changed_CL[:, 12:] += 1
    assert np.array_equal(smooth(raw_CL)[:, :12], smooth(changed_CL)[:, :12])


def test_first_crossing_by_hand() -> None:
    ema_CL = np.array([[3.0, 2.0, 2.5, 1.0]], np.float32)
    target_CG = np.array([[3.0, 2.2, 2.0, 1.5, 0.9]], np.float32)
    assert first_crossing(ema_CL, target_CG).tolist() == [[1, 2, 2, 4, NEVER]]


def test_targets(toy_bank: CurveBank) -> None:
    fractions_G = (0.3, 1.0, 1.05)
    target_CG = toy_bank.target_losses(fractions_G)
    lowest_C = toy_bank.ema_CL.min(1)
    assert target_CG[:, 1] == pytest.approx(lowest_C, rel=1e-5)
    share_C = np.log(toy_bank.ema_CL[:, 0] / target_CG[:, 0]) / np.log(toy_bank.ema_CL[:, 0] / lowest_C)
    assert share_C == pytest.approx(0.3, rel=1e-4)
    assert (first_crossing(toy_bank.ema_CL, target_CG)[:, 2] == NEVER).all()


def test_reading_gives_back_what_was_written(toy_bank: CurveBank, path: Path, tmp_path: Path) -> None:
    bank = CurveBank.read(path)
    assert bank.content_hash == toy_bank.content_hash
    for name in ("curve_id", "split", "seed", "accepted", "raw_CL", "ema_CL"):
        assert np.array_equal(getattr(bank, name), getattr(toy_bank, name))
    bank.write(tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == path.read_bytes()


def test_folder_names_add_no_columns(toy_bank: CurveBank, tmp_path: Path) -> None:
    odd = tmp_path / "curves.length_points=60" / "bank.parquet"
    toy_bank.write(odd)
    assert len(CurveBank.read(odd)) == len(toy_bank)


def test_rows_are_the_accepted_ones_of_a_set(toy_bank: CurveBank) -> None:
    rows = toy_bank.rows("id", "train")
    assert (toy_bank.set[rows] == "id").all() and (toy_bank.split[rows] == "train").all()
    assert len(toy_bank.rows("rl")) == 20 and len(toy_bank.rows("rl", "train")) == 0


@pytest.mark.parametrize("keep", [0, 3, 500, -1])
def test_truncated_file(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"curve bank: .*bank\.parquet is not a readable Parquet file"):
        CurveBank.read(path)


def test_a_flipped_bit_anywhere_in_the_points_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    for place in np.linspace(100, len(content) - 3000, 40).astype(int):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"curve bank: .* make it again with"):
            CurveBank.read(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"curve bank: .*gone\.parquet is missing; make it again"):
        CurveBank.read(tmp_path / "gone.parquet")


def test_other_schema_and_no_rows(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(table.drop_columns(["raw"]), path)
    with pytest.raises(UserError, match="has another schema"):
        CurveBank.read(path)
    pq.write_table(table.slice(0, 0), path)
    with pytest.raises(UserError, match="holds no curve"):
        CurveBank.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"raw": [0.5] * 7}, "has 7 points, not 60"),
        ({"raw": [0.5] * 59 + [float("nan")]}, "negative or non-finite loss"),
        ({"raw": [-0.5] + [0.5] * 59}, "negative or non-finite loss"),
        ({"curve_id": "img_mlp/00001"}, r"holds curve 'img_mlp/00001' twice"),
    ],
)
def test_impossible_curves(path: Path, change: dict[str, object], message: str) -> None:
    table = pq.ParquetFile(path).read()
    rows = table.to_pylist()
    rows[5] |= change
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    with pytest.raises(UserError, match=message):
        CurveBank.read(path)
