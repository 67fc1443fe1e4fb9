"""Checks of settings: what passes, and that an error names the setting, its value and what is allowed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zofed import ClientData, checks, fedavg, fedzo, rng, simulate, tasks


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


TASK = tasks.quadratic(dim=3, num_clients=4)


@pytest.mark.parametrize("shape", [(), (2, 1), (2, 3), (7,)])
@pytest.mark.parametrize("algorithm", ["fedzo", "fedzo per sample", "fedavg"])
def test_a_loss_of_another_shape_is_refused(shape: tuple[int, ...], algorithm: str) -> None:
    def loss(params: Any, batch: Any) -> jax.Array:
        return jnp.zeros(shape) + jnp.sum(params)

    make = {
        "fedzo": lambda: fedzo(loss, 0.1, 0.1, 1, batch_size=2),
        "fedzo per sample": lambda: fedzo(loss, 0.1, 0.1, 1, batch_size=2, per_sample=True),
        "fedavg": lambda: fedavg(loss, 0.1, 1, batch_size=2),
    }[algorithm]()
    state = make.init(jnp.zeros(3), 4)
    with pytest.raises(ValueError, match=r"loss_fn returned the shape .* for a batch of 2; allowed: \(2,\)"):
        simulate(rng.seed_key(0), make, state, TASK.data.clients, 1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "at least one array"),
        ({"a": jnp.zeros(2), "b": jnp.zeros(2, jnp.int32)}, r"params\['b'\] has the dtype int32"),
        (jnp.zeros(2, jnp.complex64), "complex64; allowed: real floating point"),
        (1.0, "float; allowed: real floating point"),
    ],
)
def test_parameters_are_real_arrays(params: Any, message: str) -> None:
    for algorithm in (fedzo(TASK.loss, 0.1, 0.1, 1), fedavg(TASK.loss, 0.1, 1)):
        with pytest.raises(ValueError, match=message):
            algorithm.init(params, 4)


@pytest.mark.parametrize(
    ("samples", "indices", "message"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, [[0], [1]], r"leading axes \[\(3,\), \(4,\)\]"),
        (np.zeros(3), [[0], [3]], "integers from 0 to 2"),
        (np.zeros(3), [[0], [-1]], "integers from 0 to 2"),
        (np.zeros(3), [[0.0], [1.0]], "dtype float64"),
        (np.zeros(3), [[True, False, False], [True]], "dtype bool"),
        (np.array([1, 2**40]), [[0], [1]], "int64 that do not fit int32"),
        (np.array([1.0, 1e300]), [[0], [1]], "float64 that do not fit float32"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_client_data_loses_nothing(samples: Any, indices: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClientData.from_partition(samples, indices)


def test_a_state_made_for_other_clients_is_refused() -> None:
    algorithm = fedzo(TASK.loss, 0.1, 0.1, 1)
    state = algorithm.init(jnp.zeros(3), 4)._replace(memory=jnp.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"shape \(2, 3\); allowed: a leading axis of num_clients=4"):
        simulate(rng.seed_key(0), algorithm, state, TASK.data.clients, 1)


def test_keys_and_seeds_of_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed: a threefry key"):
        rng.round_keys(jax.random.key(0, impl="rbg"), 0)
    for seed in (-1, 2**32):
        with pytest.raises(ValueError, match=f"seed={seed}; allowed: an integer from 0"):
            rng.seed_key(seed)
