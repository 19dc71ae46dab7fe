"""Grids: which cells they come to, what cells share, and bad ones that are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from mara_ray.config import load_config
from mara_ray.errors import UserError
from mara_ray.experiments.ablation import trials_of
from mara_ray.experiments.grid import Ablation, Grid, cells_of, read_sweep
from mara_ray.experiments.planning import SHARED, check_plan, plan_of, stages_of
from mara_ray.experiments.sweep import Sweep

ROOT = Path(__file__).parents[2]
TUNE_CONFIGS = sorted((ROOT / "tune_configs").rglob("*.yaml"))


def grid(**fields) -> Grid:
    return Grid(name="g", about="a test", preset="quick", **fields)


def test_every_combination_or_one_change_at_a_time() -> None:
    axes = {
        "simulator.switch_cost_steps": [0, 2],
        "pool": {"small": {}, "large": {"simulator.num_nodes": 8, "simulator.num_slots": 16}},
    }
    together = cells_of(grid(axes=axes))
    assert [cell.name for cell in together] == [
        "switch_cost_steps=0,pool=small",
        "switch_cost_steps=0,pool=large",
        "switch_cost_steps=2,pool=small",
        "switch_cost_steps=2,pool=large",
    ]
    assert (together[-1].config.simulator.num_nodes, together[-1].config.simulator.switch_cost_steps) == (
        8,
        2,
    )
    alone = cells_of(grid(axes=axes, vary="alone"))
    assert [(cell.name, tuple(cell.factors.values())) for cell in alone] == [
        ("base", (0, "small")),
        ("switch_cost_steps=2", (2, "small")),
        ("pool=large", (0, "large")),
    ]


def test_values_that_are_no_scalars_and_overrides() -> None:
    fields = {
        "axes": {"simulator.node_speeds": [None, [0.5, 1, 1, 1.5]]},
        "settings": {"workload.window_steps": 150},
    }
    first, second = cells_of(grid(**fields), ["workload.window_steps=120"])
    assert first.factors == {"simulator.node_speeds": "null"}
    assert second.factors == {"simulator.node_speeds": "[0.5, 1.0, 1.0, 1.5]"}
    assert second.config.simulator.node_speeds == (0.5, 1, 1, 1.5)
    assert first.config.workload.window_steps == 120
    with pytest.raises(UserError, match=r"^--set: 'simulator.node_speeds' is what the sweep varies"):
        cells_of(grid(**fields), ["simulator.node_speeds=null"])
    with pytest.raises(UserError, match=r"^simulator.node_speed: unknown key; the nearest"):
        cells_of(grid(axes={"simulator.node_speed": [1]}))


def test_what_cells_share_and_what_they_need(tmp_path: Path) -> None:
    fields = {"axes": {"simulator.switch_cost_steps": [0, 2], "evaluation.loads": [[0.04], [0.05]]}}
    shown = grid(settings={"curves.num_gpus_per_task": 0.25, "allocator.num_env_runners": 3}, **fields)
    plan = plan_of(shown, cells_of(shown), tmp_path)
    counts = {}
    for work in plan.works.values():
        counts[work.stage.name] = counts.get(work.stage.name, 0) + 1
    assert counts == {
        "curves": 1, "predictor": 1, "forecasts": 1, "workloads": 2, "allocator": 2, "evaluation": 4
    }  # fmt: skip
    groups = plan.groups("switch_cost_steps=0,loads=0.04")
    assert groups["allocator"] == SHARED and groups["evaluation"] == "switch_cost_steps=0,loads=0.04"
    enough = {"CPU": 4.0, "GPU": 1.0, "memory": 1e10}
    check_plan(plan, enough)
    assert plan.left_s(4) > 60
    curves = next(work for work in plan.works.values() if work.stage.name == "curves")
    curves.measured_s = curves.stated_s(4)
    assert plan.left_s(4) < plan_of(shown, cells_of(shown), tmp_path).left_s(4) - 20, (
        "what is done is not left"
    )
    curves.measured_s = None
    with pytest.raises(UserError, match=r"curves of switch.* needs 0.25 GPU at once, .* has 0; set curves"):
        check_plan(plan, enough | {"GPU": 0.0})
    with pytest.raises(
        UserError, match=r"allocator of .* needs 4 CPU at once, .* has 3; set fewer allocator"
    ):
        check_plan(plan, enough | {"CPU": 3.0})
    with pytest.raises(UserError, match=r"needs 400 MB of memory"):
        check_plan(plan, enough | {"memory": 1e8})


@pytest.mark.parametrize("path", TUNE_CONFIGS, ids=lambda path: path.stem)
def test_shipped_sweeps_are_whole(path: Path) -> None:
    sweep = read_sweep(path)
    trains = isinstance(sweep, Ablation) or path.stem == "quick" or path.parent.name == "training"
    if isinstance(sweep, Ablation):
        return
    cells = cells_of(sweep)
    assert len(cells) == len({cell.name for cell in cells}) == len({str(cell.config) for cell in cells})
    assert stages_of(sweep)[-1].name == sweep.kind
    trained = [
        cell.config.allocator.trained is None and bool(cell.config.allocator.policies) for cell in cells
    ]
    if sweep.kind != "forecasts":  # which end before the policies
        assert trained == [trains] * len(cells), "what trains lies in training/, and quick.yaml"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"cannot be read \(No such file or directory\); there are some in tune_configs/"),
        ("a: [", r"is not valid YAML"),
        ("- a", r"must hold a mapping"),
        ("name: x\nabout: x", r"preset: field required; mend it"),
        ("kind: tabel", r"kind: input tag 'tabel'"),
        ("name: x\nabout: x\npreset: quick\naxes: {load: [1]}", r"axes: 'load' cannot be an axis"),
        ("name: x\nabout: x\npreset: quick\naxes: {seed: []}", r"axes: .*'seed' has no values"),
        ("axes: {seed: [2024-01-05]}", r"holds a date or the like"),
        ("axes: {seed: [2024-13-45]}", r"is not valid YAML"),
        ("name: x\nabout: x\npreset: quick\naxes: {seed: 3}", r"axes: 'seed' must be a list .*, not 3"),
        ("name: x\nabout: x\npreset: quick\naxes: {pool: {4: {}}}", r"the label 4 of 'pool' must be text"),
        ("name: x\nabout: x\npreset: quick\naxes: {Pool: {a: 1}}", r"'a' of 'Pool' must be a mapping of s"),
        (
            "name: x\nabout: x\npreset: quick\naxes: {completed: {a: {}}}",
            r"axes: 'completed' cannot be an axis",
        ),
        (
            "kind: predictor_ablation\nname: x\nabout: x\npreset: quick\nepochs: 1\nsampler: {nosuch: [1]}\n"
            "training: {}\ntrain_curves: []",
            r"sampler: 'nosuch' is none of euler_steps, num_samples, warmup_points",
        ),
        (
            "kind: predictor_ablation\nname: x\nabout: x\npreset: quick\nepochs: 0\nsampler: {}\n"
            "training: {}\ntrain_curves: []",
            r"epochs: .*greater",
        ),
    ],
)
def test_bad_sweeps_are_told(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "grid.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_sweep(path)


def test_what_labels_set_is_not_set_from_outside() -> None:
    pools = {"pool": {"a": {"simulator.switch_cost_steps": 1}, "b": {"simulator.switch_cost_steps": 2}}}
    with pytest.raises(UserError, match=r"^--set: 'simulator.switch_cost_steps' is what the sweep varies"):
        cells_of(grid(axes=pools), ["simulator.switch_cost_steps=7"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"nosuch": [8]}}, r"^sweep: 'nosuch' is no number among the settings of `predictor`"),
        (
            {"training": {"horizon_bins": [0]}},
            r"^sweep: horizon_bins: input should be greater than .*, not 0;",
        ),
        ({"bank": "/nosuch.parquet"}, r"nosuch.parquet"),
    ],
)
def test_an_ablation_is_refused_before_it_trains(changes: dict, message: str) -> None:
    fields = {
        "kind": "predictor_ablation", "name": "a", "about": "a", "preset": "quick", "epochs": 1,
        "sampler": {}, "training": {}, "train_curves": [],
    }  # fmt: skip
    ablation = Ablation(**(fields | changes))
    with pytest.raises(UserError, match=message):
        trials_of(ablation, load_config("quick"))


@pytest.mark.parametrize("plays", [["strss"], ["stress:abc"], ["stress:7"]])
def test_what_cannot_be_played_is_refused_at_once(plays: list[str], tmp_path: Path) -> None:
    shown = grid(kind="play", plays=plays, settings={"curves.bank": "standard"})
    with pytest.raises(UserError, match=r"^(trace|workload|stress): "):
        Sweep.of(shown, [], tmp_path, None)
    assert not any(tmp_path.iterdir())
