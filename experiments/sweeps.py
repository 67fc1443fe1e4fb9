"""The command line's `--sweep='NAME=VALUES'`, read without evaluating code."""

import ast
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments import build
from experiments.settings import Config, flatten
from zofed import sweep

__all__ = ["apply", "parse"]

_FIXED = ("num_rounds", "eval_every", "execution.")
"""What all cells of a study share: the axis `eval` of the results, and how it is computed."""


def _space(function: Callable[..., np.ndarray]) -> Callable[..., list[float]]:
    """numpy's function, without the round-off in the last digits: 0.01 rather than 0.010000000000000002."""
    return lambda start, stop, num: [float(f"{value:.12g}") for value in function(start, stop, num)]


_CALLS: dict[str, Callable[..., Sequence[Any]]] = {
    "range": range,
    "linspace": _space(np.linspace),
    "logspace": _space(np.logspace),
}
MAX_VALUES = 1_000_000
_FORMS = (
    "a list [a, b, ...], range(...), linspace(start, stop, num) or logspace(start, stop, num), of a million at most"
)


def parse(texts: Sequence[str], config: Config) -> sweep.Grid:
    """The grid that the `--sweep` options describe.

    Raises:
        ValueError: an axis names no setting (the message lists near ones), or a value has not its type.

    Example:
        >>> from ml_collections import ConfigDict
        >>> config = ConfigDict({"seed": 0, "algorithm": {"learning_rate": 1.0}})
        >>> grid = parse(["algorithm.learning_rate=logspace(-3, -1, 3)", "seed=range(2)"], config)
        >>> [axis.values for axis in grid.axes]
        [(0.001, 0.01, 0.1), (0, 1)]
    """
    return sweep.product([_axis(text, config) for text in texts])


def _axis(text: str, config: Config) -> sweep.Axis:
    name, separator, expression = (part.strip() for part in text.partition("="))
    if not separator:
        raise ValueError(f"--sweep={text!r}: write NAME=VALUES, where VALUES is {_FORMS}")
    settings = flatten(config)
    if name not in settings:
        near = difflib.get_close_matches(name, settings, n=3, cutoff=0.5)
        ending = [full for full in settings if full.split(".")[-1] == name.split(".")[-1] and full not in near]
        hint = f"near ones: {', '.join(ending + near)}" if ending + near else f"there are: {', '.join(settings)}"
        raise ValueError(f"--sweep: {name!r} is no setting of this config; {hint}")
    if name.startswith(_FIXED):
        raise ValueError(f"--sweep: {name} is the same in all cells of a study; set it with --config.{name}=...")
    values = tuple(_typed(name, value, settings[name]) for value in _values(name, expression))
    if name in build.TRACED and name != "seed":
        numbers = [build.as_traced(name, value) for value in values]
        if len(set(numbers)) < len(values):
            raise ValueError(f"--sweep: {name} has values that are the same {numbers[0].dtype}: {list(values)}")
    return sweep.Axis(name, values)


def _values(name: str, expression: str) -> list[Any]:
    try:
        node = ast.parse(expression, mode="eval").body
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.keywords:
                raise ValueError
            made = _CALLS[node.func.id](*(ast.literal_eval(argument) for argument in node.args))
            if len(made) > MAX_VALUES:
                raise ValueError
            return list(made)
        if not isinstance(node, ast.List | ast.Tuple):
            raise ValueError
        return list(ast.literal_eval(node))
    except (KeyError, SyntaxError, TypeError, ValueError):
        raise ValueError(f"--sweep: {name}={expression} cannot be read; write {_FORMS}") from None


def _typed(name: str, value: Any, usual: Any) -> Any:
    """`value`, if it has the type of the setting's usual value; an integer may stand for a float."""
    wanted = str if usual is None else type(usual)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ValueError(f"--sweep: {name} has the value {value!r}; allowed: {wanted.__name__}, like {usual!r}")
    return value


def apply(config: Config, cell: Mapping[str, Any]) -> Config:
    """A copy of the config with a cell's settings in place."""
    changed = config.copy_and_resolve_references()
    changed.update_from_flattened_dict(cell)
    return changed
