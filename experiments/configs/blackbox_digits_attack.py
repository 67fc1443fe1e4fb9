"""A true black-box attack: FedZO against a scikit-learn classifier of the digits, which answers with probabilities.

python -m experiments.run --config=experiments/configs/blackbox_digits_attack.py --workdir=runs/digits_attack

10 clients hold the eights that the network gets right. Each local step of all clients is one call of the classifier:
250 calls and 275,000 queries in 20 seconds, after which the perturbation fools it on 73% of the eights.
`--config.query_budget=200000` ends the run before it asks for more; `--config.data.victim=forest
--config.algorithm.smoothing=0.3` attacks a random forest. Needs scikit-learn: pip install 'zofed[blackbox]'.
"""

from experiments.settings import Config, digit_attacks, study


def get_config() -> Config:
    config = study(digit_attacks())
    config.num_rounds = 50
    config.num_clients = 10
    config.cohort_size = 10
    config.algorithm.update(learning_rate=0.03, smoothing=0.01, batch_size=10, num_directions=10)
    return config
