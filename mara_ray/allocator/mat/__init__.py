"""The Multi-Agent Transformer allocator, trained by PPO on RLlib."""
