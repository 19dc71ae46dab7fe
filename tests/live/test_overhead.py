"""What the controller costs, and the workloads of the wall-clock comparison."""

from pathlib import Path

import numpy as np

from mara_ray import pretrained
from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.evaluation.rollout import rollout
from mara_ray.live.entries import make_entry
from mara_ray.live.jobs import Seconds
from mara_ray.live.margin import simulated_met, trained_again
from mara_ray.live.method import live_method
from mara_ray.live.overhead import Weight, controller_milliseconds
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import draw_workload

STANDARD = Path("standard")


def test_a_step_costs_the_controller_milliseconds(tmp_path):
    measured = controller_milliseconds(live_method("lara_fm", STANDARD, STANDARD), 4, tmp_path)
    assert measured["tasks"] >= 4
    assert measured["median_ms"] <= measured["budget_ms"] == 5 + measured["tasks"]


def test_a_weight_is_as_large_as_asked_for_and_can_be_moved():
    first, second = Weight(1000), Weight(1000)
    first.run_block()
    second.load_state_dict(first.state_dict())
    assert second.run_block() == first.run_block() < 1
    assert len(second.weight) == 1000


def test_a_shipped_curves_training_is_the_one_it_came_from():
    config, bank = load_config("standard"), CurveBank.read(pretrained.BANK)
    replay = CurveReplay.from_bank(bank, config.workload.target_fractions)
    workload = draw_workload(config.workload, bank.rows("id", "test"), 0.06, 1, 0, "live", 0)
    jobs = trained_again(bank, replay.target_CG, workload, config, step_s=0.5)
    for number in (0, 3):
        job, row = jobs.jobs[number], workload.curve_BJ[0, number]
        assert job.arrival == Seconds(0.5 * workload.arrival_BJ[0, number])
        assert job.deadline == Seconds(0.5 * (workload.deadline_BJ - workload.arrival_BJ)[0, number])
        task = make_entry(job.entry, job.arguments)
        # Machines of another kind round otherwise, so not to the bit here.
        np.testing.assert_allclose(task.initial_loss, bank.raw_CL[row, 0], rtol=1e-4)
        np.testing.assert_allclose(task.run_block(), bank.raw_CL[row, 1], rtol=1e-3)


def test_the_simulators_count_needs_only_the_curves_that_are_played():
    config, bank = load_config("standard"), CurveBank.read(pretrained.BANK)
    workload = draw_workload(config.workload, bank.rows("id", "test"), 0.06, 1, 0, "live", 1)
    method = live_method("lara", STANDARD, STANDARD)
    replay = CurveReplay.from_bank(bank, config.workload.target_fractions)
    simulator = Simulator(config.simulator, config.workload.episode_steps, replay)
    table = ForecastTable.of(method.predictor, bank, replay.target_CG)
    played = rollout(simulator, table, method.allocator, workload)
    expected = int((played.outcomes.finished_BJ >= 0).sum())
    assert simulated_met(bank, config, workload, method) == expected > 0
