"""From a config to the compression of what clients send, and to what it leaves of a round's bytes."""

from collections.abc import Callable
from typing import Any

from experiments.settings import Config
from zofed import checks, ledger
from zofed.aggregation import Aggregation
from zofed.codecs import MAX_BITS, Codec, compressed, quantize, top_k
from zofed.ledger import Costs

__all__ = ["AS_IT_IS", "compress", "costs_of", "is_compressed"]

AS_IT_IS = 32
"""Value of `aggregation.bits` that stands for numbers that are not quantised."""


def is_compressed(config: Config) -> bool:
    """Whether clients send less than their payload."""
    return config.aggregation.fraction != 1 or config.aggregation.bits != AS_IT_IS


def compress(config: Config, link: Aggregation) -> Aggregation:
    """The link with the config's codecs before it: the largest entries first, then their quantisation.

    Raises:
        ValueError: a setting is out of range, or has no meaning with another.
    """
    settings, codecs = config.aggregation, list[Codec]()
    if not is_compressed(config):
        if settings.error_feedback:
            raise ValueError(
                "aggregation.error_feedback=True without compression; allowed: with aggregation.fraction below 1, or "
                f"aggregation.bits of at most {MAX_BITS}"
            )
        return link
    # One bit per number, and nothing at all: what is left has no use for codecs.
    if settings.name == "majority" or config.algorithm.name == "mezo":
        subject = "algorithm.name='mezo'" if config.algorithm.name == "mezo" else "aggregation.name='majority'"
        raise ValueError(
            f"aggregation.fraction={settings.fraction} and aggregation.bits={settings.bits} with {subject}; "
            f"allowed: 1.0 and {AS_IT_IS}"
        )
    if settings.fraction != 1:
        codecs.append(top_k(settings.fraction))
    if settings.bits != AS_IT_IS:
        checks.count("aggregation.bits", settings.bits, at_most=MAX_BITS, limit=f"or {AS_IT_IS}: not quantised")
        codecs.append(quantize(settings.bits, settings.stochastic))
    return compressed(link, *codecs, error_feedback=settings.error_feedback)


def costs_of(config: Config, costs: Costs, payload: Any, account: Callable[..., Costs] = ledger.compressed) -> Costs:
    """`costs` with the payload compressed as the config says. Over the air every entry keeps its symbol.

    Args:
        config: of the study.
        costs: with the payload as it is.
        payload: shapes of what a client sends.
        account: `zofed.ledger.compressed` or `compressed_paper`.
    """
    if not is_compressed(config) or config.aggregation.name == "aircomp":
        return costs
    return account(costs, payload, config.aggregation.fraction, config.aggregation.bits)
