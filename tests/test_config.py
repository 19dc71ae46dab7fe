"""Presets, overrides, errors and the hash."""

from __future__ import annotations

import pytest

from mara_ray.config import load_config, preset_names
from mara_ray.errors import UserError


@pytest.mark.parametrize("name", preset_names())
def test_every_shipped_preset_is_valid_and_bears_its_name(name: str) -> None:
    assert load_config(name).name == name


def test_overrides_reach_the_field() -> None:
    assert load_config("quick", ["predictor.epochs=7"]).predictor.epochs == 7
    assert load_config("quick", ["evaluation.sets=[id]"]).evaluation.sets == ("id",)


@pytest.mark.parametrize(
    ("preset", "override", "parts"),
    [
        ("quik", None, ["'quik'", "'quick'"]),
        ("quick", "predictor.epoch=3", ["predictor.epoch", "'predictor.epochs'"]),
        ("quick", "predictr.epochs=3", ["predictr", "predictor"]),
        ("quick", "predictor.epochs=0", ["predictor.epochs", "0"]),
        ("quick", "predictor.epochs=many", ["predictor.epochs", "'many'"]),
        ("quick", "simulator.num_nodes=0", ["simulator.num_nodes", "0"]),
        ("quick", "simulator.num_slots=0", ["simulator.num_slots", "0"]),
        ("quick", "simulator.migration_cost_steps=-1", ["simulator.migration_cost_steps", "-1"]),
        ("quick", "simulator.loss_noise=-0.1", ["simulator.loss_noise", "-0.1"]),
        ("quick", "simulator.loss_noise=.nan", ["simulator.loss_noise", "nan"]),
        ("quick", "workload.initial_tasks=-1", ["workload.initial_tasks", "-1"]),
        ("quick", "workload.beyond_end=keep", ["workload.beyond_end", "'keep'", "'cut' or 'leave_out'"]),
        ("quick", "workload.arrival_probability=1.5", ["workload.arrival_probability", "1.5"]),
        ("quick", "predictor.epochs", ["section.field=value"]),
        ("quick", "name.x=1", ["name"]),
        ("quick", "seed=[1", ["seed"]),
    ],
)
def test_bad_input_gets_one_line_with_field_value_and_remedy(
    preset: str, override: str | None, parts: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        load_config(preset, [override] if override else [])
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_a_preset_may_be_a_file_and_a_broken_file_is_named(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: [")
    with pytest.raises(UserError, match=r"mine\.yaml"):
        load_config(str(path))
    path.write_text("- 1")
    with pytest.raises(UserError, match="mapping"):
        load_config(str(path))
