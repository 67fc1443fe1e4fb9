"""Federated tuning of scikit-learn models: two hyper-parameters that suit all clients, whose digits differ.

python -m experiments.run --config=experiments/configs/blackbox_tuning.py --workdir=runs/tuning

20 clients with Dirichlet(1) label shares cross-validate kernel ridge regression on their own digits; FedZO tunes the
logarithms of its regularisation and kernel width with the validation errors of 4 folds, 5 clients a round.
On two CPU cores a run takes 40 seconds and 3,200 queries, each a model trained; the validation error falls from 1.00
to 0.27, and `test_accuracy`, that of the tuned model trained on all digits, rises from 0.983 to 0.989. Needs
scikit-learn: pip install 'zofed[blackbox]'.
"""

from experiments.settings import Config, study, tunings


def get_config() -> Config:
    config = study(tunings())
    config.num_rounds = 40
    config.num_clients = 20
    config.cohort_size = 5
    config.algorithm.update(
        local_steps=2, batch_size=2, num_directions=2, learning_rate=0.5, smoothing=0.1, estimator="central"
    )
    return config
