"""All settings of a study, their types and usual values: a config starts from `study(...)` and changes some.

The result is locked: a name that is not here is an error, in a config file and on the command line.
"""

from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

__all__ = ["Config", "attacks", "digit_attacks", "flatten", "images", "quadratics", "study", "tunings"]

Config = Any
"""A ConfigDict, of whose attributes type checkers know nothing."""


def study(data: Config) -> Config:
    """The settings of FedZO's paper (V-B) on the given data."""
    config = ConfigDict(
        {
            "seed": 0,  # of the run; the partition of the data has its own
            "num_rounds": 100,
            "eval_every": 5,  # rounds between evaluations; divides num_rounds
            "record_gradient": False,  # ||grad f(x)||^2 at each evaluation, by differentiation
            "query_budget": placeholder(int),  # losses of one example to ask for at most; ends a run early
            "num_clients": 50,
            "participation": "uniform",  # uniform, or gain_threshold: those whose channel is good enough
            "cohort_size": 50,  # of participation=uniform: clients in a round, drawn without replacement
            "algorithm": {
                "name": "fedzo",  # a name in build.ALGORITHMS; fedavg ignores what others need
                "local_steps": 5,
                "num_directions": 20,
                "batch_size": 25,
                "learning_rate": 1e-3,
                "smoothing": 1e-3,
                "directions": "sphere",  # a name in zofed.directions.LAWS
                "estimator": "forward",  # a name in zofed.estimators.DIFFERENCES
                "per_sample": False,  # directions of its own for each example of a batch
                "optimizer": "sgd",  # sgd, momentum, trace (PyTorch's), adam or sign; local ones of fedavg and fedzo
                "momentum": 0.9,  # decay of optimizer=momentum and trace
                "weight_decay": 0.0,  # this times the model joins the gradient
                "server_optimizer": "sgd",  # of fedavg and fedzo: sgd, momentum, adam, yogi or adagrad
                "server_momentum": 0.9,  # decay of the mean update in server_optimizer=momentum, adam and yogi
                "server_learning_rate": 1.0,
                "num_estimates": 1,  # of dzopa and zone_s, which take no local steps: estimates averaged in a round
                "consensus_rate": 0.01,  # of dzopa: gamma
                "graph": "complete",  # of dzopa: a name in zofed.graphs.GRAPHS
                "penalty": 500.0,  # of zone_s: rho, in the place of learning_rate
                "max_lag": -1,  # of decomfl: who missed more rounds pulls the model; -1: nobody does
            },
            "schedule": {
                "rounds": (),  # rounds, counted from 0, from which on other factors hold; rising
                "learning_rate_factors": (),  # one for each of them, of algorithm.learning_rate; (): always 1
                "num_directions_factors": (),  # the same of algorithm.num_directions, integers
            },
            "aggregation": {
                "name": "mean",  # mean; aircomp: over the air, with noise; majority: decomfl of one bit
                "fraction": 1.0,  # of the entries that a client sends, the largest ones (Top-k); 1: all of them
                "bits": 32,  # of each number that it sends, 1 to 16 quantised (FedCom has 8); 32: as it is
                "stochastic": True,  # of bits below 32: rounding by chance, unbiased; False: to the nearest
                "error_feedback": False,  # what fraction and bits leave out is kept, and added next time
            },
            "channel": {  # of participation=gain_threshold and aggregation.name=aircomp
                "snr_db": 0.0,
                "gain_threshold": 0.8,
                "mean_square_gain": 1.0,  # E|h|^2; the authors' code of FedZO has 0.5
                "noise": "full",  # a name in zofed.aggregation.NOISE_SHARE
                "variant": "paper",  # paper or authors_code: whose noise variance
            },
            "execution": {  # how it is computed; results agree to round-off whatever is chosen
                "cell_chunk": placeholder(int),  # cells vmapped at once; None: by backend
                "client_chunk": placeholder(int),  # clients mapped at once; None: by backend
                "direction_chunk": placeholder(int),  # directions held at once; None: by backend
                "num_devices": placeholder(int),  # that cells are spread over; None: all GPUs or TPUs, or a CPU's cores
            },
        }
    )
    config.data = data
    return config.lock()


def images(name: str, **changes: Any) -> Config:
    """Settings of an image classification: a data set of `zofed.data` and its partition over the clients."""
    return _changed(
        {
            "name": name,
            "directory": placeholder(str),  # where its files are; None: the usual places
            "keep_every": 1,  # image of either part, in its order; 1: all of them
            "model": "softmax",  # softmax, or a name in image_tasks.MODELS
            "normalisation": "none",  # none: images in [0, 1]; published: then by zofed.data.NORMALISATIONS
            "partition": "shards",  # iid, shards, dirichlet or dirichlet_prior
            "shards_per_client": 2,
            "dirichlet_alpha": 1.0,
            "batching": "replacement",  # a name in zofed.batches.BATCHINGS
            "seed": 0,  # of the partition
        },
        changes,
    )


def quadratics(**changes: Any) -> Config:
    """Settings of `zofed.tasks.quadratic`."""
    return _changed(
        {
            "name": "quadratic",
            "dim": 100,
            "samples_per_client": 10,
            "condition": 10.0,
            "effective_rank": placeholder(float),  # in the place of the condition
            "heterogeneity": 1.0,
            "noise": 0.1,
            "ripple": 0.0,  # height of the cosines that make it other than convex
            "batching": "replacement",
            "seed": 0,  # of the clients' samples
        },
        changes,
    )


def attacks(**changes: Any) -> Config:
    """Settings of the black-box attack on a classifier of CIFAR-10 (FedZO, V-A), `zofed.attack`."""
    return _changed(
        {
            "name": "cifar10_attack",
            "directory": placeholder(str),  # where CIFAR-10's files are; None: the usual places
            "victim": "resnet8",  # the classifier that ships, or a file that experiments.train_carlini made
            "label": 4,  # the class that is attacked: deer
            "keep_every": 1,  # so many of its images are left out but for one: smaller evaluations
            "scores": "logits",  # a name in zofed.attack.SCORES
            "distortion_weight": 1.0,  # c
            "shrink": 1.0,  # of pixels; Carlini and Wagner's 0.999999 lets saturated ones move
            "partition": "random_sizes",  # random_sizes or equal; overlapping: the code of FedZO's authors
            "batching": "replacement",  # a name in zofed.batches.BATCHINGS
            "seed": 0,  # of the partition
        },
        changes,
    )


def digit_attacks(**changes: Any) -> Config:
    """Settings of the same attack on a scikit-learn classifier of the digits, a black box to JAX."""
    return _changed(
        {
            "name": "digits_attack",
            "victim": "mlp",  # a name in blackbox_tasks.VICTIMS
            "label": 8,  # the class that is attacked
            "scores": "logprob",  # logprob or prob: logits are not to be had
            "distortion_weight": 1.0,  # c
            "shrink": 0.999,  # of pixels, most of which are saturated
            "batching": "replacement",
            "seed": 0,  # of the partition, and of the victim's training
        },
        changes,
    )


def tunings(**changes: Any) -> Config:
    """Settings of federated tuning: two hyper-parameters of scikit-learn's kernel ridge regression on the digits."""
    return _changed(
        {
            "name": "digits_tuning",
            "folds": 4,  # of a client's cross-validation: its samples
            "dirichlet_alpha": 1.0,  # of the clients' label shares
            "batching": "replacement",
            "seed": 0,  # of the partition
        },
        changes,
    )


def _changed(settings: dict[str, Any], changes: dict[str, Any]) -> Config:
    config = ConfigDict(settings).lock()
    config.update(changes)
    return config


def flatten(config: Config) -> dict[str, Any]:
    """Setting by dotted name.

    Example:
        >>> flatten(ConfigDict({"seed": 0, "data": {"name": "digits"}}))
        {'data.name': 'digits', 'seed': 0}
    """
    values: dict[str, Any] = {}
    for name in sorted(config):
        if isinstance(config[name], ConfigDict):
            values |= {f"{name}.{inner}": value for inner, value in flatten(config[name]).items()}
        else:
            values[name] = config[name]
    return values
