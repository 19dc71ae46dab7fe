"""Film reviews, favourable or not: a plain training loop that yields a loss a block."""

import torch
from torch import nn

from mara_ray.curves.datasets.text import load_reviews


def reviews(width=32, learning_rate=3e-3, seed=0):
    torch.manual_seed(seed)
    words, labels = (torch.from_numpy(array).long() for array in load_reviews())
    model = nn.Sequential(nn.EmbeddingBag(2000, width), nn.ReLU(), nn.Linear(width, 2))
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    while True:
        total = 0.0
        for _ in range(20):
            rows = torch.randint(len(words), (64,))
            loss = nn.functional.cross_entropy(model(words[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
        yield total / 20
