"""FedZO's black-box attack on a classifier of CIFAR-10 (Fang et al. 2022, V-A), with the paper's settings.

python -m experiments.run --config=experiments/configs/fedzo_cifar_attack.py --workdir=runs/cifar_attack

10 clients (their number is from the authors' code) hold the 4,131 deer of the training set that the victim, the
ResNet-8 that ships with zofed (82.22% of the test set; the paper's has 82.3%), gets right: a random number each, no
image twice. H = 5, b1 = 25, b2 = 20, eta = mu = 1e-3, c = 1, scores are logits. Needs the data set:
python -m zofed.data fetch cifar10. `--config.algorithm.name=dzopa` (and learning_rate=0.005) or zone_s (and
directions=gaussian) are the paper's baselines. What the authors' code does otherwise: data.partition=overlapping; over
the air channel.mean_square_gain=0.5 and channel.variant=authors_code; algorithm.num_estimates=5 of DZOPA; of ZONE-S
algorithm.penalty=163, which is what its rho of 5e5 and its factor d come to. A round is 26,250 evaluations of the
classifier: seconds on a CPU.
"""

from experiments.settings import Config, attacks, study


def get_config() -> Config:
    config = study(attacks())
    config.num_clients = 10
    config.cohort_size = 10
    config.eval_every = 10
    return config
