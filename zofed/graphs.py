"""Communication graphs of peer-to-peer algorithms, as Laplacian matrices: numpy, outside any trace."""

from collections.abc import Callable

import numpy as np

from zofed import checks

__all__ = ["GRAPHS", "check_laplacian", "complete", "ring"]

_TOLERANCE = 1e-6
"""Of the largest entry: what round-off may leave of symmetry and of zero row sums."""


def complete(num_clients: int) -> np.ndarray:
    """Every client is linked to every other one: N I - 1 1^T, whose eigenvalues are 0 and N.

    Example:
        >>> complete(3)
        array([[ 2., -1., -1.],
               [-1.,  2., -1.],
               [-1., -1.,  2.]])
    """
    num_clients = checks.count("num_clients", num_clients)
    return num_clients * np.eye(num_clients) - np.ones((num_clients, num_clients))


def ring(num_clients: int) -> np.ndarray:
    """Every client is linked to the one before and the one after it; eigenvalues are up to 4.

    Example:
        >>> ring(4)[0]
        array([ 2., -1.,  0., -1.])
    """
    num_clients = checks.count("num_clients", num_clients)
    places = np.arange(num_clients)
    adjacency = np.zeros((num_clients, num_clients))
    adjacency[places, (places + 1) % num_clients] = 1
    adjacency = np.maximum(adjacency, adjacency.T) * (1 - np.eye(num_clients))
    return np.diag(adjacency.sum(axis=1)) - adjacency


def check_laplacian(laplacian: np.ndarray) -> float:
    """The largest eigenvalue of the Laplacian of a connected graph, whose links may have weights.

    Raises:
        ValueError: it is no such matrix; the message says why.

    Example:
        >>> check_laplacian(complete(5))
        5.0
        >>> check_laplacian(np.array([[1.0, -1.0], [0.0, 0.0]]))
        Traceback (most recent call last):
        ValueError: laplacian is not symmetric; allowed: the Laplacian of an undirected, connected graph
    """
    wanted = "allowed: the Laplacian of an undirected, connected graph"
    laplacian = np.asarray(laplacian, np.float64)
    if laplacian.ndim != 2 or laplacian.shape[0] != laplacian.shape[1] or not laplacian.size:
        raise ValueError(f"laplacian has the shape {laplacian.shape}; {wanted}, [num_clients, num_clients]")
    if not np.isfinite(laplacian).all():
        raise ValueError(f"laplacian has entries that are not finite; {wanted}")
    tolerance = _TOLERANCE * max(1.0, np.abs(laplacian).max())
    if np.abs(laplacian - laplacian.T).max() > tolerance:
        raise ValueError(f"laplacian is not symmetric; {wanted}")
    if np.abs(laplacian.sum(axis=1)).max() > tolerance:
        raise ValueError(f"laplacian has rows that do not sum to 0; {wanted}")
    if (laplacian - np.diag(np.diag(laplacian))).max() > tolerance:
        raise ValueError(f"laplacian has positive entries off its diagonal; {wanted}")
    eigenvalues = np.linalg.eigvalsh(laplacian)
    if len(eigenvalues) > 1 and eigenvalues[1] <= tolerance:
        raise ValueError(f"laplacian has more than one zero eigenvalue: its graph is not connected; {wanted}")
    return round(float(eigenvalues[-1]), 9)


GRAPHS: dict[str, Callable[[int], np.ndarray]] = {"complete": complete, "ring": ring}
"""Graphs by the name that configs use."""
