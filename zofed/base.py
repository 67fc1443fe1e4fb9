"""The types that every part of zofed shares: clients, cohorts, algorithms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "Algorithm",
    "Client",
    "ClientData",
    "Cohort",
    "LocalInfo",
    "LossFn",
    "Params",
    "Record",
    "RoundInfo",
    "State",
    "dimension",
    "no_record",
    "objective_weights",
    "per_client_mean",
    "squared_norm",
    "wide",
]

Params = Any
"""A pytree of arrays."""

LossFn = Callable[[Params, Any], jax.Array]
"""`loss_fn(params, batch) -> losses`, one per example of the batch; the engine averages."""


def dimension(params: Params) -> int:
    """Number of entries of all leaves together, the paper's d.

    Example:
        >>> dimension({"weights": jnp.zeros((10, 784)), "bias": jnp.zeros(10)})
        7850
    """
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def wide(dtype: Any) -> Any:
    """The dtype that differences and sums are held in: float64 for float64, float32 for all others.

    Example:
        >>> wide(jnp.bfloat16), wide(np.float64)
        (dtype('float32'), dtype('float64'))
    """
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def squared_norm(tree: Params) -> jax.Array:
    """Sum of the squares of all entries, float32.

    Example:
        >>> squared_norm({"a": jnp.ones(3), "b": jnp.full((), 2.0)})
        Array(7., dtype=float32)
    """
    squares = (jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree))
    return sum(squares, start=jnp.float32(0))


class Client(NamedTuple):
    """One client's view of the data: its slice of the flat arrays of all clients.

    Under a map over clients the flat arrays are shared and only `id`, `offset` and `size` differ.
    """

    id: jax.Array
    samples: Any
    offset: jax.Array
    size: jax.Array
    max_size: int

    def take(self, indices: jax.Array) -> Any:
        """The samples at `indices` in `[0, size)` of this client: one gather."""
        return jax.tree.map(lambda field: field[self.offset + indices], self.samples)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ClientData:
    """Data of all clients without padding: client i owns `offsets[i] : offsets[i] + sizes[i]`.

    Attributes:
        samples: pytree of arrays with one leading axis, the samples of client 0, then of client 1 ...
        offsets: int32[num_clients].
        sizes: int32[num_clients], each at least 1.
        max_size: the largest size; static, so that shapes can depend on it.

    Example:
        >>> data = ClientData.from_partition({"x": np.arange(5.0)}, [[4, 0], [1, 2, 3]])
        >>> data.samples["x"], data.num_clients, data.max_size
        (Array([4., 0., 1., 2., 3.], dtype=float32), 2, 3)
    """

    samples: Any
    offsets: jax.Array
    sizes: jax.Array
    max_size: int = field(metadata={"static": True})

    @classmethod
    def from_partition(cls, samples: Any, indices: Sequence[Any]) -> "ClientData":
        """Gathers `samples` (leading axis = sample) into contiguous clients; `indices[i]` are client i's.

        Raises:
            ValueError: there is no client, a client has no sample, the fields differ in length, an index is no integer
                within them, or a field loses its values in JAX's dtypes.
        """
        lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(samples)}
        if len(lengths) != 1 or lengths == {()}:
            raise ValueError(f"samples have the leading axes {sorted(lengths)}; allowed: one, the same in all fields")
        sizes = np.array([len(own) for own in indices], np.int32)
        if sizes.size == 0:
            raise ValueError("indices is empty: at least one client is needed")
        if sizes.min() == 0:
            empty = np.flatnonzero(sizes == 0).tolist()
            raise ValueError(f"clients {empty} have no sample; every client needs at least 1")
        order = np.concatenate([np.asarray(own) for own in indices])
        ((length,),) = lengths
        if not np.issubdtype(order.dtype, np.integer) or order.min() < 0 or order.max() >= length:
            raise ValueError(f"indices of dtype {order.dtype}; allowed: integers from 0 to {length - 1}, the samples")
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        gathered = jax.tree.map(lambda leaf: _to_device(np.asarray(leaf)[order]), samples)
        return cls(gathered, jnp.asarray(offsets), jnp.asarray(sizes), int(sizes.max()))

    @property
    def num_clients(self) -> int:
        return self.sizes.shape[0]

    def client(self, id: jax.Array) -> Client:
        """The view of client `id` (a traced scalar)."""
        return Client(id, self.samples, self.offsets[id], self.sizes[id], self.max_size)


def _to_device(field: np.ndarray) -> jax.Array:
    """The field in JAX's dtype of it, where that one holds its values: int64 becomes int32, float64 float32."""
    array = jnp.asarray(field)
    exact = np.array_equal if np.issubdtype(field.dtype, np.integer) else _equally_finite
    if array.dtype != field.dtype and not exact(np.asarray(array), field):
        raise ValueError(f"a field of samples has values of dtype {field.dtype} that do not fit {array.dtype}")
    return array


def _equally_finite(narrow: np.ndarray, field: np.ndarray) -> bool:
    return np.array_equal(np.isfinite(narrow), np.isfinite(field))


def objective_weights(clients: ClientData, dtype: Any = jnp.float32) -> jax.Array:
    """[samples], what each sample's loss weighs in f(x), the mean of the clients' mean losses: FedZO (1).

    Example:
        >>> objective_weights(ClientData.from_partition(np.zeros(3), [[0], [1, 2]]))
        Array([0.5 , 0.25, 0.25], dtype=float32)
    """
    shares = 1.0 / (clients.num_clients * clients.sizes.astype(dtype))
    total = jax.tree.leaves(clients.samples)[0].shape[0]
    return jnp.repeat(shares, clients.sizes, total_repeat_length=total)


def per_client_mean(values: jax.Array, clients: ClientData) -> jax.Array:
    """Mean over clients of each client's mean of `values`, one per sample: f(x) of FedZO, (1).

    Example:
        >>> data = ClientData.from_partition(np.zeros(3), [[0], [1, 2]])
        >>> per_client_mean(jnp.array([6.0, 1.0, 3.0]), data)
        Array(4., dtype=float32)
    """
    return jnp.sum(objective_weights(clients, values.dtype) * values)


class Cohort(NamedTuple):
    """Who takes part in a round.

    Attributes:
        ids: int32[slots], the participants first; what follows them is ignored.
        count: number of participants: a Python int where it is always the same, else a traced int32.
        gain: complex64[slots] channel coefficients of `ids`, or None where there is no channel.
        gain_threshold: h_min, the modulus that each participant's gain reaches; None where there is no channel.
    """

    ids: jax.Array
    count: int | jax.Array
    gain: jax.Array | None = None
    gain_threshold: jax.Array | None = None


class LocalInfo(NamedTuple):
    """What one client's work of a round was like; scalars, averaged over the participants."""

    loss: jax.Array
    """Mean loss of the batches, at the points where the client queried them."""
    zero_differences: jax.Array
    """Fraction of finite differences that are exactly zero: round-off swallowed them."""


class State(NamedTuple):
    """What the next round needs."""

    server: Any
    """The server's state; holds the model."""
    memory: Any
    """What each client keeps between rounds: leaves with a leading client axis, or `()`."""
    round: jax.Array
    """int32, number of rounds done."""


class RoundInfo(NamedTuple):
    """Diagnostics of a round."""

    local: LocalInfo
    """Averages over the participants whose result was finite; 0 where there was none."""
    cohort_size: jax.Array
    """Participants, whether their result was finite or not."""
    nonfinite: jax.Array
    """Participants whose result was masked out because it was not finite."""
    link: Any
    """What the aggregation reports (a NamedTuple of scalars, or `()`)."""
    record: Any = ()
    """A `Record` where the algorithm keeps one, else `()`."""


class Record(NamedTuple):
    """What an algorithm keeps of a round beyond diagnostics."""

    counts: dict[str, jax.Array]
    """Integers by name; a run adds them up over its rounds."""
    history: Any
    """What the model can be rebuilt from; a run puts the rounds' one after the other."""


def no_record(keys: Any, state: State, next_state: State, aggregate: Any, heard: jax.Array) -> Any:
    """The `record` of an algorithm that keeps none."""
    del keys, state, next_state, aggregate, heard
    return ()


class Algorithm(NamedTuple):
    """A federated algorithm as pure functions, safe under jit, vmap and scan.

    `simulate` draws the cohort, maps `local` over it, masks non-finite results, reduces what the
    clients send with the aggregation and calls `server`.

    Attributes:
        init: `(params, num_clients) -> State`.
        local: `(keys, server, memory_i, client_i) -> (payload, memory_i, LocalInfo)`, one client's round.
            `keys` are the round's `zofed.rng.RoundKeys`.
        server: `(keys, state, aggregate, cohort) -> server`, the server's next state.
        params: `State -> Params`, the model to evaluate.
        sample_cohort: `(keys, num_clients) -> Cohort`.
        aggregation: the `zofed.aggregation.Aggregation` between `local` and `server`.
        record: `(keys, state, next_state, aggregate, heard) -> Record` or `()`, after each round. `heard` is whether
            anybody was; the aggregate means nothing, and the server stays, where nobody was.
    """

    init: Callable[[Params, int], State]
    local: Callable[..., tuple[Any, Any, LocalInfo]]
    server: Callable[..., Any]
    params: Callable[[State], Params]
    sample_cohort: Callable[..., Cohort]
    aggregation: Any
    record: Callable[..., Any] = no_record
