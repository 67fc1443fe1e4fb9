"""Models: pure functions of a pytree of parameters."""
