"""FedZO on a federated quadratic of 100 dimensions, whose minimum is known: seconds.

python -m experiments.run --config=experiments/configs/quadratic.py --workdir=runs/quadratic
"""

from ml_collections import ConfigDict

from experiments.settings import quadratics, study


def get_config() -> ConfigDict:
    config = study(quadratics())
    config.num_rounds = 200
    config.eval_every = 10
    config.num_clients = 10
    config.cohort_size = 10
    config.algorithm.batch_size = 5
    config.algorithm.learning_rate = 1e-2
    return config
