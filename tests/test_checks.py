"""Checks of settings: what passes, and that an error names the setting, its value and what is allowed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zofed import checks, tasks


@pytest.mark.parametrize("value", [1e-3, 2, np.float32(0.1), jnp.float32(0.1), np.array(0.5)])
def test_numbers_pass(value: Any) -> None:
    checks.positive("rate", value)
    checks.finite_or_infinity("snr", value)
    jax.jit(lambda x: checks.positive("rate", x))(value)


@pytest.mark.parametrize("value", ["0.1", True, None, np.nan, np.inf, 0.0, np.array([0.1, 0.2]), [0.1]])
def test_what_is_no_positive_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^rate.*; allowed: a finite number > 0$"):
        checks.positive("rate", value)


@pytest.mark.parametrize("value", ["inf", True, None, np.nan, -np.inf, np.array([np.inf, 0.0])])
def test_what_is_no_number_or_infinity_is_refused(value: Any) -> None:
    checks.finite_or_infinity("snr", np.inf)
    with pytest.raises(ValueError, match=r"^snr.*; allowed: a finite number or inf$"):
        checks.finite_or_infinity("snr", value)


def test_a_traced_array_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"rate has the shape \(3,\)"):
        jax.jit(lambda x: checks.positive("rate", x))(jnp.ones(3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"condition": 0.5}, "condition=0.5; allowed: a finite number >= 1"),
        ({"seed": -1}, "seed=-1; allowed: an integer from 0 up"),
        ({"seed": 1.5}, "seed=1.5; allowed: an integer from 0 up"),
    ],
)
def test_a_quadratic_is_as_its_settings_say(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tasks.quadratic(**settings)
