"""Real trainings, and the loss curves they leave."""
