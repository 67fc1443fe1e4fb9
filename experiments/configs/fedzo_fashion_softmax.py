"""FedZO's softmax regression on Fashion-MNIST (Fang et al. 2022, V-B): 50 clients, two label shards each.

    python -m experiments.run --config=experiments/configs/fedzo_fashion_softmax.py \
        --workdir=runs/fedzo_fashion_softmax
"""

from ml_collections import ConfigDict

from experiments.settings import images, study


def get_config() -> ConfigDict:
    return study(images("fashion_mnist"))
