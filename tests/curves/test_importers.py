"""Outside curves: by hand-computed resampling, by what the loggers write, and by what must be refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mara_ray.curves.bank import CurveBank
from mara_ray.curves.importers import OutsideCurve, import_curves, resample
from mara_ray.errors import UserError

LOSSES = [2.0, 1.5, 1.1, 0.9, 0.8, 0.7, 0.65]


def imported(path: Path, scalar: str | None = None, length_points: int = 20) -> tuple[CurveBank, str]:
    return import_curves(path, scalar, "outside", "id", length_points)


def write_csv(path: Path, lines: list[str], head: str = "curve,step,loss") -> Path:
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def long_lines(num_curves: int = 3) -> list[str]:
    return [f"run{c},{10 * s},{loss / (c + 1)}" for c in range(num_curves) for s, loss in enumerate(LOSSES)]


def test_resampling_by_hand() -> None:
    curve = OutsideCurve("a", steps=[0, 1, 2, 4], losses=[4.0, 2.0, 1.0, 1.0])
    # Two spans of two steps: areas 3 + 1.5 and 2, each over two steps.
    assert resample(curve, 3).tolist() == pytest.approx([4.0, 2.25, 1.0])
    # Eight spans of half a step: midpoints of the straight pieces.
    expected = [4.0, 3.5, 2.5, 1.75, 1.25, 1.0, 1.0, 1.0, 1.0]
    assert resample(curve, 9).tolist() == pytest.approx(expected)
    assert resample(curve, 4).tolist() == [4.0, 2.0, 1.0, 1.0], "as many points as wanted: as it is"


def test_resampling_keeps_the_area() -> None:
    rng = np.random.default_rng(0)
    step_S = np.cumsum(rng.uniform(0.1, 3, 200))
    loss_S = rng.uniform(0, 2, 200)
    points_L = resample(OutsideCurve("a", step_S.tolist(), loss_S.tolist()), 41)
    span = (step_S[-1] - step_S[0]) / 40
    assert points_L[1:].sum() * span == pytest.approx(np.trapezoid(loss_S, step_S))


def test_csv_and_parquet_give_the_same_bank(tmp_path: Path) -> None:
    bank, said = imported(write_csv(tmp_path / "curves.csv", long_lines()))
    assert bank.curve_id.tolist() == ["outside/run0", "outside/run1", "outside/run2"]
    assert bank.raw_CL.shape == (3, 20) and bank.raw_CL[1, 0] == 1.0 and bank.accepted.all()
    assert bank.split.tolist() == ["train", "test", "train"]
    assert said == "3 curves, 3 of them accepted as learning; 3 resampled from 7-7 points to 20"
    columns = zip(*(line.split(",") for line in long_lines()), strict=True)
    names, steps, losses = (list(column) for column in columns)
    table = {
        "curve": names,
        "step": [int(s) for s in steps],
        "loss": [float(x) for x in losses],
        "other": names,
    }
    pq.write_table(pa.table(table), tmp_path / "curves.parquet")
    again, _ = imported(tmp_path / "curves.parquet")
    assert np.array_equal(again.raw_CL, bank.raw_CL)
    bank.write(tmp_path / "bank.parquet")
    assert CurveBank.read(tmp_path / "bank.parquet").content_hash == bank.content_hash


def test_a_flat_curve_is_kept_but_not_accepted(tmp_path: Path) -> None:
    lines = [*long_lines(1), *(f"flat,{s},0.7" for s in range(20))]
    bank, said = imported(write_csv(tmp_path / "curves.csv", lines))
    assert dict(zip(bank.curve_id.tolist(), bank.status.tolist(), strict=True))["outside/flat"] == "flat"
    assert said == "2 curves, 1 of them accepted as learning; 1 resampled from 7-7 points to 20"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run0,99,x", r"curves\.csv, line 9: loss 'x' is not a number"),
        ("run0,99,nan", r"line 9: loss 'nan' of curve 'run0' is negative or not finite"),
        ("run0,99,-0.1", r"line 9: loss '-0.1' of curve 'run0' is negative or not finite"),
        ("run0,60,0.1", r"line 9: step 60 of curve 'run0' comes twice or out of order"),
        ("run0,99", r"line 9: wrong number of fields"),
        ("run0,99,1,2", r"line 9: wrong number of fields"),
        ("lonely,1,0.5", r"curve 'lonely' has 1 point; two are needed"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = write_csv(tmp_path / "curves.csv", [*long_lines(1), line])
    with pytest.raises(UserError, match=message):
        imported(path)


def test_bad_files(tmp_path: Path) -> None:
    for name, content, message in (
        ("gone.csv", None, "is missing"),
        ("empty.csv", b"", "lacks the column 'curve'"),
        ("head.csv", b"curve,step,loss\n", "holds no curve"),
        ("columns.csv", b"curve,loss\na,1\n", "lacks the column 'step'; it needs curve, step, loss"),
        ("latin.csv", b"curve,step,loss\n\xe9,1,2\n", "not CSV"),
        ("bad.parquet", b"PAR1", "not a readable Parquet file"),
        ("bad.json", b"{", "is not JSON"),
        ("other.json", b'{"x": 1}', "needs numbers under 'xs'"),
        ("shape.json", b'{"xs": [0, 1], "ys": [[1, 2, 3]]}', r"'ys' has shape \(1, 1, 3\)"),
        ("curves.txt", b"", r"is no \.csv, \.parquet or \.json file"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=message):
            imported(tmp_path / name)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="holds neither TensorBoard event files nor W&B offline runs"):
        imported(tmp_path / "folder")


def write_tensorboard(folder: Path, name: str, losses: list[float], first_step: int = 0) -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder / name)) as writer:
        for step, loss in enumerate(losses, first_step):
            writer.add_scalar("train/loss", loss, step)
            writer.add_scalar("lr", 0.1, step)


def test_tensorboard(tmp_path: Path) -> None:
    write_tensorboard(tmp_path, "a", LOSSES)
    write_tensorboard(tmp_path, "b/c", [loss / 2 for loss in LOSSES])
    bank, _ = imported(tmp_path, "train/loss", 7 + 13)
    assert bank.curve_id.tolist() == ["outside/a", "outside/b/c"]
    assert bank.raw_CL[:, 0].tolist() == [2.0, 1.0]
    with pytest.raises(UserError, match=r"hold several scalars; choose with --scalar one of lr, train/loss"):
        imported(tmp_path)
    with pytest.raises(UserError, match=r"hold no scalar 'loss'; choose with --scalar one of lr, train/loss"):
        imported(tmp_path, "loss")


def test_a_resumed_tensorboard_run_counts_as_one(tmp_path: Path) -> None:
    write_tensorboard(tmp_path, "a", [3.0, 9.9, 9.9])
    first = next((tmp_path / "a").iterdir())
    shutil.move(first, first.with_name("0-tfevents"))  # named before the second
    write_tensorboard(tmp_path, "a", [2.0 - 0.05 * step for step in range(1, 20)], first_step=1)
    bank, _ = imported(tmp_path, "train/loss")
    assert bank.raw_CL[0].tolist() == pytest.approx([3.0, *(2.0 - 0.05 * step for step in range(1, 20))])


def test_damaged_event_files(tmp_path: Path) -> None:
    write_tensorboard(tmp_path, "a", LOSSES)
    path = next((tmp_path / "a").iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # cut off while it was written: what came before counts
    assert len(json.loads(str(imported(tmp_path, "train/loss")[0].hyperparameters[0]))) == 3
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"record \d+: damaged"):
        imported(tmp_path, "train/loss")


def test_wandb(tmp_path: Path) -> None:
    import wandb

    for number, scale in enumerate((1.0, 0.5)):
        run = wandb.init(mode="offline", dir=str(tmp_path), id=f"run{number}", settings={"silent": True})
        for loss in LOSSES:
            # Long texts fill the log's blocks, so that records are split over two of them.
            run.log({"train": {"loss": loss * scale}, "text": "x" * 9000})
        run.finish()
    bank, _ = imported(tmp_path, "train/loss")
    assert len(bank) == 2 and sorted(bank.raw_CL[:, 0].tolist()) == [1.0, 2.0]
    assert imported(tmp_path)[0].content_hash == bank.content_hash, "it is the only number that was logged"
    path = next(tmp_path.rglob("*.wandb"))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"\.wandb, record \d+: (damaged|not a W&B record)"):
        imported(tmp_path)
    path.write_bytes(b"something else")
    with pytest.raises(UserError, match="is not the file of a W&B offline run"):
        imported(tmp_path)


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_taskset(tmp_path: Path, axes: int) -> None:
    losses = np.stack([np.array(LOSSES), np.array(LOSSES) / 2])
    if axes >= 3:
        losses = losses[:, None].repeat(3, 1)
    if axes == 4:
        losses = np.stack([losses, losses + 1, losses + 2, losses + 3], -1)
    path = tmp_path / "task.json"
    path.write_text(json.dumps({"xs": list(range(0, 70, 10)), "ys": losses.tolist()}))
    bank, _ = imported(path)
    assert len(bank) == (2 if axes == 2 else 6)
    assert bank.curve_id[0] == "outside/0000-0" and bank.raw_CL[0, 0] == 2.0 and bank.raw_CL[-1, 0] == 1.0
    path.write_text(path.read_text().replace("1.1", "NaN", 1))
    with pytest.raises(UserError, match=r"task\.json, ys\[0\]\[0\]\[2\]: loss nan of curve '0000-0'"):
        imported(path)
