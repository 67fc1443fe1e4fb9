"""FedZO on a federated quadratic of 100 dimensions, whose minimum is known: to try things out.

python -m experiments.run --config=experiments/configs/quadratic.py --workdir=runs/quadratic

10 clients with different minima. On two CPU cores a run takes 6 seconds, most of them compiling; the training
loss falls from 37.4 to 16.9 in 200 rounds; its minimum is 16.8.
"""

from experiments.settings import Config, quadratics, study


def get_config() -> Config:
    config = study(quadratics())
    config.num_rounds = 200
    config.eval_every = 10
    config.num_clients = 10
    config.cohort_size = 10
    config.algorithm.batch_size = 5
    config.algorithm.learning_rate = 0.01
    return config
