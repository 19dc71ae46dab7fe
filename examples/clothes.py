"""Small images of clothes, told apart by a network of two layers: a task that can be put down and moved."""

import torch
from torch import nn

import mara_ray
from mara_ray.curves.datasets.image import load_images


class Clothes(mara_ray.LearningTask):
    """A block is 20 mini-batches; its loss is their mean."""

    def __init__(self, width=64, learning_rate=0.03, seed=0):
        torch.manual_seed(seed)
        images, labels = load_images()
        self.images, self.labels = torch.from_numpy(images).flatten(1), torch.from_numpy(labels)
        self.model = nn.Sequential(nn.Linear(196, width), nn.ReLU(), nn.Linear(width, 10))
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=learning_rate)
        self.order = torch.Generator().manual_seed(seed)

    def run_block(self):
        losses = []
        for _ in range(20):
            rows = torch.randint(len(self.images), (64,), generator=self.order)
            loss = nn.functional.cross_entropy(self.model(self.images[rows]), self.labels[rows])
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def state_dict(self):
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "order": self.order.get_state(),
        }

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.order.set_state(state["order"])
