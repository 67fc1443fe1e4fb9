"""FedZO over the air, softmax regression on Fashion-MNIST (Fang et al. 2022, V-B), with the paper's settings.

python -m experiments.run --config=experiments/configs/fedzo_fashion_aircomp.py --workdir=runs/fashion_aircomp

50 clients with two label shards of 600 images each; those with |h| >= 0.8 take part, 26 on average, h ~ CN(0, 1).
H = 20, b1 = 25, b2 = 20, eta = mu = 1e-3, P / sigma_w^2 = 0 dB. With --config.aggregation.name=mean the same clients
take part and there is no noise. Needs the data set: python -m zofed.data fetch fashion_mnist. A run of 100
rounds ends at a training loss of 1.11 and a test accuracy of 0.67.
"""

from experiments.configs import fedzo_fashion_softmax
from experiments.settings import Config


def get_config() -> Config:
    config = fedzo_fashion_softmax.get_config()
    config.participation = "gain_threshold"
    config.aggregation.name = "aircomp"
    config.algorithm.local_steps = 20
    return config
