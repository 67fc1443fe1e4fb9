"""FedZO on the 1,797 digits of 8x8 pixels that ship with zofed: the first study to run.

python -m experiments.run --config=experiments/configs/fedzo_digits.py --workdir=runs/fedzo_digits

20 clients with two label shards each, 10 of them in a round. On two CPU cores a run takes 10 seconds, half of
them compiling; the test accuracy rises to 0.83 in 20 rounds and to 0.89 in 100. With
--sweep='algorithm.name=["fedzo","fedavg"]' FedAvg stands beside it (0.92).
"""

from experiments.settings import Config, images, study


def get_config() -> Config:
    config = study(images("digits"))
    config.num_clients = 20
    config.cohort_size = 10
    config.algorithm.learning_rate = 0.3
    return config
