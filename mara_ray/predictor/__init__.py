"""From a loss prefix to the remaining demand."""
