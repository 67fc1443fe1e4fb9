"""Compression and optimisers of FedAvg from the command line: what they send and make of it, what is refused."""

import csv
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

from experiments import averaging, build, run
from experiments.settings import images, study
from tests import tiny
from zofed.base import dimension

pytestmark = [
    pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning"),
    pytest.mark.usefixtures("compilation_cache"),
]

FEDAVG = [*tiny.STUDY, "--config.algorithm.name=fedavg"]
MEZO = ["--config.algorithm.name=mezo", "--config.num_clients=1", "--config.cohort_size=1"]


def command(workdir: Path, *options: str) -> int:
    return run.main(["run", *FEDAVG, f"--workdir={workdir}", *options])


def test_a_sweep_over_compressions_has_the_bytes_of_each(tmp_path: Path) -> None:
    """Two participants a round of five numbers: 20 bytes, or three of them (12 or 3) and a bit map; a grid is 8."""
    axes = ["--sweep=aggregation.fraction=[1.0,0.5]", "--sweep=aggregation.bits=[32,8]"]
    assert command(tmp_path, *axes) == 0
    results = xarray.load_dataset(tmp_path / "results.nc")
    per_round = np.array([[20, 5 + 8], [12 + 1, 3 + 8 + 1]]) * 2
    assert (results["uplink_bytes"].values == per_round[..., None] * [0, 2, 4]).all()
    assert (results["uplink_bytes_paper"].values == 2 * np.array([[20, 5], [12, 3]])[..., None] * [0, 2, 4]).all()
    assert (results["downlink_bytes"].values == 2 * 20 * np.array([0, 2, 4])).all()
    assert (results["uplink_scalars"].values[..., -1] == 8 * np.array([[5, 5], [3, 3]])).all()
    final = results["train_loss"].values[..., -1].ravel()
    assert len(set(final)) == 4
    assert (final < results["train_loss"].values[..., 0].ravel()).all()


def test_server_optimisers_differ_and_their_rate_is_swept_in_one_group(tmp_path: Path) -> None:
    names = sorted(averaging.SERVER_OPTIMIZERS)
    axes = [f"--sweep=algorithm.server_optimizer={names}", "--sweep=algorithm.server_learning_rate=[0.01,0.02]"]
    assert command(tmp_path, *axes) == 0
    final = xarray.load_dataset(tmp_path / "results.nc")["train_loss"].values[..., -1]
    assert len(set(final.ravel())) == 2 * len(names)
    with (tmp_path / "summary.csv").open() as file:
        assert [row["status"] for row in csv.DictReader(file)] == ["ok"] * 2 * len(names)


def test_error_feedback_changes_the_run_but_not_its_bytes(tmp_path: Path) -> None:
    axes = ["--config.aggregation.fraction=0.4", "--sweep=aggregation.error_feedback=[False,True]"]
    assert command(tmp_path, *axes) == 0
    results = xarray.load_dataset(tmp_path / "results.nc")
    assert results["train_loss"].values[0, -1] != results["train_loss"].values[1, -1]
    assert (results["uplink_bytes"].values[0] == results["uplink_bytes"].values[1]).all()


def test_local_optimisers_of_fedavg(tmp_path: Path) -> None:
    """PyTorch's momentum doubles a part of the second local step; weight decay pulls to zero."""
    axes = ['--sweep=algorithm.optimizer=["sgd","trace"]', "--sweep=algorithm.weight_decay=[0.0,0.5]"]
    assert command(tmp_path, "--config.algorithm.local_steps=2", *axes) == 0
    final = xarray.load_dataset(tmp_path / "results.nc")["train_loss"].values[..., -1]
    assert final[1, 0] < final[0, 0]
    assert len(set(final.ravel())) == 4


def test_a_part_of_the_images() -> None:
    config = study(images("digits", keep_every=10))
    config.num_clients = config.cohort_size = 5
    build.check(config)
    data = build.task_of(config).data
    assert (int(data.clients.sizes.sum()), len(data.test["label"])) == (144, 36)


def test_scalars_of_decomfl_are_compressed_too() -> None:
    """Of 2 x 4 scalars, two with 8 bits: headers, 2 bytes, 8 of the grid and 1 of the bit map."""
    config = study(images("digits"))
    config.algorithm.update(name="decomfl", local_steps=2, num_directions=4)
    config.num_clients = config.cohort_size = 5
    plain = build.costs_of(config, build.task_of(config)).per_participant
    config.aggregation.update(fraction=0.25, bits=8)
    build.check(config)
    own = build.costs_of(config, build.task_of(config)).per_participant
    assert plain.uplink_bytes - own.uplink_bytes == 8 * 4 - (2 + 8 + 1)
    assert own.downlink_bytes == plain.downlink_bytes
    assert build.paper_costs_of(config, build.task_of(config)).per_participant.uplink_bytes == 2


def test_top_k_over_the_air_takes_every_symbol() -> None:
    config = study(images("digits"))
    config.num_clients, config.participation = 5, "gain_threshold"
    config.aggregation.update(name="aircomp", fraction=0.1, error_feedback=True)
    build.check(config)
    task = build.task_of(config)
    dim = dimension(jax.eval_shape(task.init, jax.random.key(0)))
    assert build.costs_of(config, task).per_round.uplink_channel_uses == dim
    config.aggregation.bits = 8
    with pytest.raises(ValueError, match=r"aggregation\.name='aircomp' with aggregation\.bits=8"):
        build.check(config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config.aggregation.bits=17"], "aggregation.bits=17; allowed: an integer from 1 to 16 (or 32"),
        (["--config.aggregation.bits=0"], "aggregation.bits=0"),
        (["--config.aggregation.fraction=0.0"], "aggregation.fraction=0.0; allowed: a finite number > 0"),
        (["--config.aggregation.fraction=1.5"], "aggregation.fraction=1.5; allowed: above 0, at most 1"),
        (["--config.aggregation.error_feedback=True"], "error_feedback=True without compression"),
        (["--sweep=aggregation.stochastic=[True,False]"], "aggregation.stochastic changes nothing here"),
        (["--config.algorithm.server_optimizer=lamb"], "server_optimizer='lamb'; allowed: 'adagrad', 'adam'"),
        (["--config.algorithm.server_momentum=1.0"], "server_momentum=1.0; allowed: from 0 to below 1"),
        (["--config.algorithm.server_learning_rate=0.0"], "server_learning_rate=0.0"),
        (["--sweep=algorithm.server_momentum=[0.1,0.5]"], "algorithm.server_momentum changes nothing here"),
        (
            ["--config.aggregation.bits=8", "--config.algorithm.name=decomfl", "--config.aggregation.name=majority"],
            "aggregation.bits=8 with aggregation.name='majority'",
        ),
        (
            ["--config.aggregation.bits=8", *MEZO],
            "with algorithm.name='mezo'",
        ),
        (
            ["--config.aggregation.bits=8", "--config.algorithm.name=zone_s"],
            "aggregation.bits=8 with algorithm.name='zone_s'; allowed: 32",
        ),
        (
            ["--config.algorithm.name=dzopa", "--config.algorithm.optimizer=adam"],
            "algorithm.optimizer='adam' with algorithm.name='dzopa'; allowed: 'sgd'",
        ),
        (
            [
                "--config.algorithm.name=zone_s",
                "--config.schedule.rounds=(2,)",
                "--config.schedule.learning_rate_factors=(0.5,)",
            ],
            "schedule.learning_rate_factors=(0.5,) with algorithm.name='zone_s'",
        ),
    ],
)
def test_what_is_out_of_range_or_has_no_meaning_is_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path / "run", *options) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
