"""FedAvg on Fashion-MNIST beside DeComFL: the same network, clients, batches, rate and K = 5 (figures 3 and 6).

python -m experiments.run --config=experiments/configs/fedavg_fashion_cnn.py --workdir=runs/fedavg_fashion_cnn

As fedavg_mnist_cnn, which says what FedCom and Top-k are; the rate, 1e-3, is that of their published curves, too.
Needs the data set: python -m zofed.data fetch fashion_mnist.
"""

from experiments.configs import decomfl_fashion_cnn
from experiments.settings import Config


def get_config() -> Config:
    config = decomfl_fashion_cnn.get_config()
    config.algorithm.update(name="fedavg", optimizer="trace", momentum=0.5)
    config.schedule.update(rounds=(), num_directions_factors=())
    return config
