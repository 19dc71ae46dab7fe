"""PPO with a ratio for every node, one advantage for the team, and a normalised value loss.

Axis letters: B rows (one step of one episode each), M nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor

from mara_ray.allocator.mat.module import ENTROPY, FREE

ADAM_EPSILON = 1e-5
KL_KEY = "mean_kl"
CLIPPED_KEY = "clipped_fraction"


class MATLearner(PPOTorchLearner):
    """RLlib's PPO learner with the Multi-Agent Transformer's loss."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam with a larger epsilon than RLlib's."""
        params = self.get_parameters(self._module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(params, eps=ADAM_EPSILON),
            params=params,
            lr_or_lr_schedule=config.lr,
        )

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Set the entropy weight of this update; RLlib does so after it, which a restored learner lacks."""
        super().before_gradient_based_update(timesteps=timesteps)
        for module_id in self.module.keys():  # noqa: SIM118 - an RLModule, not a dict
            schedule = self.entropy_coeff_schedulers_per_module[module_id]
            schedule.update(timestep=timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Tensor]
    ) -> Tensor:
        """Clipped surrogate over the nodes that had a choice, value loss, entropy bonus."""
        free_BM = fwd_out[FREE]
        num_free = free_BM.sum().clamp_min(1)

        def mean(term_BM: Tensor) -> Tensor:
            return torch.where(free_BM, term_BM, 0.0).sum() / num_free

        log_ratio_BM = fwd_out[Columns.ACTION_LOGP] - batch[Columns.ACTION_LOGP]
        ratio_BM = log_ratio_BM.exp()
        advantage_B1 = batch[Postprocessing.ADVANTAGES][:, None]
        clipped_BM = ratio_BM.clamp(1 - config.clip_param, 1 + config.clip_param)
        policy_loss = -mean(torch.minimum(ratio_BM * advantage_B1, clipped_BM * advantage_B1))
        entropy = mean(fwd_out[ENTROPY])

        scale = self.module[module_id].unwrapped().value_scale
        target_B = scale.normalise(batch[Postprocessing.VALUE_TARGETS])
        value_loss = (fwd_out[Columns.VF_PREDS] - target_B).square().mean()

        self.metrics.log_dict(
            {
                POLICY_LOSS_KEY: policy_loss.detach(),
                VF_LOSS_KEY: value_loss.detach(),
                ENTROPY_KEY: entropy.detach(),
                KL_KEY: mean(ratio_BM - 1 - log_ratio_BM).detach(),
                CLIPPED_KEY: mean((clipped_BM != ratio_BM).float()).detach(),
            },
            key=module_id,
            window=1,
        )
        entropy_weight = self.entropy_coeff_schedulers_per_module[module_id].get_current_value()
        return policy_loss + config.vf_loss_coeff * value_loss - entropy_weight * entropy
