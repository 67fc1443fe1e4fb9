"""FedZO's softmax regression on Fashion-MNIST (Fang et al. 2022, V-B), with the paper's settings.

python -m experiments.run --config=experiments/configs/fedzo_fashion_softmax.py --workdir=runs/fashion_softmax

50 clients with two label shards of 600 images each, all in every round, H = 5, b1 = 25, b2 = 20,
eta = mu = 1e-3. Needs the data set: python -m zofed.data fetch fashion_mnist. On two CPU cores a run takes 40
seconds and ends at a training loss of 1.61 and a test accuracy of 0.65; each further cell adds 30 seconds.
"""

from experiments.settings import Config, images, study


def get_config() -> Config:
    return study(images("fashion_mnist"))
