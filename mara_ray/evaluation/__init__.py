"""All methods on the same frozen episodes, with intervals, bounds and pictures."""
