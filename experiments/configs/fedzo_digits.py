"""FedZO on the 1,797 digits that ship with zofed: the first study to run, in seconds.

python -m experiments.run --config=experiments/configs/fedzo_digits.py --workdir=runs/fedzo_digits
"""

from ml_collections import ConfigDict

from experiments.settings import images, study


def get_config() -> ConfigDict:
    config = study(images("digits"))
    config.num_rounds = 100
    config.eval_every = 5
    config.num_clients = 20
    config.cohort_size = 10
    config.algorithm.learning_rate = 1e-2
    return config
