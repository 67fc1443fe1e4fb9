"""Communication costs in closed form."""

import numpy as np

from zofed.ledger import model_exchange, over_the_air

PARAMS = {"a": np.zeros((3, 2), np.float32), "b": np.zeros(5, np.float16)}


def test_a_model_exchange_is_as_large_as_the_model_both_ways() -> None:
    traffic = model_exchange(PARAMS).per_participant
    assert (traffic.uplink_bytes, traffic.downlink_bytes) == (34, 34)
    assert (traffic.uplink_scalars, traffic.downlink_scalars, traffic.uplink_channel_uses) == (11, 11, 11)


def test_orthogonal_access_takes_m_times_d_symbols_and_aircomp_d() -> None:
    dim, participants, rounds = 11, [0, 7, 0, 5], [0, 1, 0, 1]
    orthogonal = model_exchange(PARAMS).over(participants, rounds)
    air = over_the_air(PARAMS).over(participants, rounds)
    np.testing.assert_array_equal(orthogonal.uplink_channel_uses, [0, 7 * dim, 7 * dim, 12 * dim])
    np.testing.assert_array_equal(air.uplink_channel_uses, [0, dim, dim, 2 * dim])


def test_aircomp_counts_its_side_scalars() -> None:
    air = over_the_air(PARAMS).over([7], [1])
    orthogonal = model_exchange(PARAMS).over([7], [1])
    assert air.uplink_bytes == 7 * 4  # a squared norm
    assert air.uplink_scalars - orthogonal.uplink_scalars == 7
    assert air.downlink_scalars - orthogonal.downlink_scalars == 7 * 3  # Delta_max and a complex gain
    assert air.downlink_bytes - orthogonal.downlink_bytes == 7 * 12


def test_counts_are_exact_beyond_32_bits() -> None:
    large = model_exchange({"a": np.broadcast_to(np.float32(0), (10**6, 10**3))}).over([50, 50], [1, 1])
    assert large.uplink_bytes.dtype == np.int64
    assert large.uplink_bytes[-1] == 100 * 4 * 10**9
