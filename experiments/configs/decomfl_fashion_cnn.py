"""DeComFL's convolutional network of 1,206,590 parameters on Fashion-MNIST, with the settings of the paper's text.

python -m experiments.run --config=experiments/configs/decomfl_fashion_cnn.py --workdir=runs/decomfl_fashion_cnn
python -m experiments.replay --workdir=runs/decomfl_fashion_cnn

100 clients with Dirichlet(1) label shares, 10 of them in a round, K = 5 local steps, momentum 0.5 as in (8),
eta = mu = 1e-3, forward differences, 32 examples. P = 25 directions, doubled at rounds 500, 1,000 and 2,000: the last
two thirds of the run's rounds are nine tenths of its work. The head has 62 outputs, which is what the number of
parameters in the paper comes to; data.model=fashion_cnn_10 has 10. The scale of the images is that of the published
code. Needs the data set: python -m zofed.data fetch fashion_mnist.
"""

from experiments.configs import decomfl_mnist_cnn
from experiments.settings import Config


def get_config() -> Config:
    config = decomfl_mnist_cnn.get_config()
    config.data.update(name="fashion_mnist", model="fashion_cnn")
    config.num_rounds = 3000
    config.algorithm.update(local_steps=5, num_directions=25)
    config.schedule.update(rounds=(500, 1000, 2000), num_directions_factors=(2, 4, 8))
    return config
