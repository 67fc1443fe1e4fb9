"""FedAvg on MNIST beside DeComFL: the same network, clients and batches (figure 2 of DeComFL).

python -m experiments.run --config=experiments/configs/fedavg_mnist_cnn.py --workdir=runs/fedavg_mnist_cnn

The paper gives momentum 0.5 for all algorithms and no rate for this one; that of its published curves is 0.1, as their
names say. PyTorch's momentum (m <- 0.5 m + g) is anew in each round: of no effect on the one local step of 32 examples
here. With --config.aggregation.bits=8 it is FedCom, with --config.aggregation.fraction=0.1 FedAvg with
the largest tenth of each update (and with --config.aggregation.error_feedback=True the rest is kept for later), with
--config.algorithm.server_optimizer=momentum or adam FedAvgM or FedAdam, whose rate is
--config.algorithm.server_learning_rate. Needs the data set: python -m zofed.data fetch mnist.
"""

from experiments.configs import decomfl_mnist_cnn
from experiments.settings import Config


def get_config() -> Config:
    config = decomfl_mnist_cnn.get_config()
    config.algorithm.update(name="fedavg", local_steps=1, learning_rate=0.1, optimizer="trace", momentum=0.5)
    return config
