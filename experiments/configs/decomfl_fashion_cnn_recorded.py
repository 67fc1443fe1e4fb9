"""DeComFL on Fashion-MNIST as the published code and curves have it, which differs from the paper's text.

python -m experiments.run --config=experiments/configs/decomfl_fashion_cnn_recorded.py --workdir=runs/fashion_recorded
python -m experiments.replay --workdir=runs/fashion_recorded

Central differences, PyTorch's momentum of 0.8 (m <- b m + g), weight decay 1e-5, eta = 5e-4, IID clients, and batches
that go through a client's data in turn. Where P doubles, the rate becomes 0.8, 0.5 and 0.3 of its start, too. (The code
changes both one round later, at 501, 1,001 and 2,001.) Batch size and mu are defaults of the code's versions of 2024,
256 and 1e-4, as in decomfl_mnist_cnn_recorded. The published curve, of one seed, has a test accuracy of 0.74 after 100
rounds, 0.79 after 500 and 0.82 after 1,000. Needs the data set: python -m zofed.data fetch fashion_mnist.
"""

from experiments.configs import decomfl_fashion_cnn
from experiments.settings import Config


def get_config() -> Config:
    config = decomfl_fashion_cnn.get_config()
    config.data.update(partition="iid", batching="epoch")
    config.algorithm.update(batch_size=256, smoothing=1e-4, learning_rate=5e-4, estimator="central")
    config.algorithm.update(optimizer="trace", momentum=0.8, weight_decay=1e-5)
    config.schedule.learning_rate_factors = (0.8, 0.5, 0.3)
    return config
