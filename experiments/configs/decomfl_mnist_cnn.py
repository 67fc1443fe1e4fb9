"""DeComFL's convolutional network of 28,938 parameters on MNIST, with the settings of the paper's text (section 5).

python -m experiments.run --config=experiments/configs/decomfl_mnist_cnn.py --workdir=runs/decomfl_mnist_cnn
python -m experiments.replay --workdir=runs/decomfl_mnist_cnn

100 clients with Dirichlet(1) label shares, 10 of them in a round, momentum 0.5 as in (8), eta = mu = 1e-3, forward
differences, 32 examples. Figure 2 varies K and P without naming a usual value; here K = 1 and P = 20, those of the
recorded runs (decomfl_mnist_cnn_recorded) that it varies least. The scale of the images is that of the published code.
Needs the data set: python -m zofed.data fetch mnist.
"""

from experiments.settings import Config, images, study


def get_config() -> Config:
    data = images("mnist", model="mnist_cnn", normalisation="published", partition="dirichlet", dirichlet_alpha=1.0)
    config = study(data)
    config.num_rounds = 2000
    config.eval_every = 100
    config.num_clients = 100
    config.cohort_size = 10
    config.algorithm.update(
        name="decomfl",
        local_steps=1,
        num_directions=20,
        batch_size=32,
        learning_rate=1e-3,
        smoothing=1e-3,
        directions="gaussian",
        optimizer="momentum",
        momentum=0.5,
    )
    return config
