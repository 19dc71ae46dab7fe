"""Who arrives when, with what target and deadline."""
