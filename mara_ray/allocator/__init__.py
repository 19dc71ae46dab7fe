"""Who gets which node."""
