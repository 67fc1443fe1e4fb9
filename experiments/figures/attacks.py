"""What the figures of FedZO's black-box attack share: sizes that CPUs can play, and the baselines."""

from experiments.configs import fedzo_cifar_attack
from experiments.figures.command_line import Size
from experiments.figures.curves import Curve, Study
from experiments.figures.drawing import Look, Panel
from experiments.settings import Config

__all__ = [
    "BASELINES",
    "BY_QUERIES",
    "DZOPA",
    "PANELS",
    "ZONE_S",
    "aircomp",
    "curves_of_baselines",
    "of_fifty",
    "sizes",
]

DZOPA, ZONE_S = "DZOPA", "ZONE-S"
PANELS = (
    Panel("rounds", "train_loss", "attack loss f(x)"),
    Panel("rounds", "attack_accuracy"),
    Panel("rounds", "distortion"),
)
BY_QUERIES = Panel("queries", "train_loss", "attack loss f(x)")


def sizes(cpu_rounds: int, full_rounds: int, local_steps: int | None = None) -> dict[str, Size]:
    """Sizes of which only `full` has the paper's batches, directions and images.

    Args:
        cpu_rounds: of the size `cpu`.
        full_rounds: as in the code of FedZO's authors.
        local_steps: of the smaller sizes; None: the paper's.
    """
    fewer = {} if local_steps is None else {"algorithm.local_steps": local_steps}
    quick = {"algorithm.batch_size": 5, "algorithm.num_directions": 4, "data.keep_every": 20, **fewer}
    cpu = {"algorithm.batch_size": 5, "algorithm.num_directions": 10, "data.keep_every": 4, **fewer}
    return {
        "quick": Size(3, 2, 1, quick),
        "cpu": Size(cpu_rounds, 2, 2, cpu),
        "full": Size(full_rounds, 3, 10),
    }


def _dzopa() -> Config:
    config = fedzo_cifar_attack.get_config()
    config.algorithm.update(name="dzopa", learning_rate=0.005)
    return config


def _zone_s() -> Config:
    """rho = 500 is the paper's, 100 estimates of one Gaussian direction each are the code's of its authors.

    They stay what they are in every size.
    """
    config = fedzo_cifar_attack.get_config()
    config.algorithm.update(name="zone_s", penalty=500.0, num_estimates=100, directions="gaussian")
    return config


BASELINES = (
    Study("dzopa", _dzopa(), ('algorithm.name=["dzopa"]',)),
    Study("zone_s", _zone_s(), ("algorithm.num_directions=[1]",)),
)


def curves_of_baselines() -> tuple[Curve, ...]:
    """The two baselines, dashed."""
    return (
        Curve(DZOPA, "dzopa", {"algorithm.name": "dzopa"}, Look(5, dashed=True)),
        Curve(ZONE_S, "zone_s", {"algorithm.num_directions": 1}, Look(6, dashed=True)),
    )


def of_fifty() -> Config:
    """FedZO with 50 clients and H = 20."""
    config = fedzo_cifar_attack.get_config()
    config.num_clients = config.cohort_size = 50
    config.algorithm.local_steps = 20
    return config


def aircomp() -> Config:
    """The same over the air: those with |h| >= 0.8 take part."""
    config = of_fifty()
    config.participation = "gain_threshold"
    config.aggregation.name = "aircomp"
    return config
