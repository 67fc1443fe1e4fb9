"""The command `python -m experiments.replay`, and the histories that runs leave behind."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

from experiments import execution, history, replay, run
from experiments.history import HistoryFile
from zofed import messages
from zofed.replay import History

# How ml_collections loads a config file.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning"),
    pytest.mark.usefixtures("compilation_cache"),
]

CONFIGS = Path(run.__file__).parent / "configs"
TINY = [
    f"--config={CONFIGS / 'quadratic.py'}",
    "--config.data.dim=3",
    "--config.num_rounds=6",
    "--config.eval_every=2",
    "--config.num_clients=4",
    "--config.cohort_size=2",
    "--config.algorithm.name=decomfl",
    "--config.algorithm.local_steps=2",
    "--config.algorithm.num_directions=2",
    "--config.algorithm.batch_size=2",
    "--config.algorithm.smoothing=0.1",
    "--config.algorithm.optimizer=adam",
    "--config.execution.num_devices=1",
    "--config.execution.cell_chunk=8",  # vmapped
    "--noprogress",
]
SWEEP = ["--sweep=algorithm.learning_rate=[0.01,0.03]", "--sweep=seed=range(2)"]


def train(workdir: Path, *options: str) -> int:
    return run.main(["run", *TINY, f"--workdir={workdir}", *options])


def verdicts(workdir: Path) -> list[str]:
    return [verdict.word for verdict in replay.verdicts(workdir)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("trained") / "run"
    assert train(workdir, *SWEEP) == 0
    return workdir


@pytest.fixture
def workdir(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def rewrite(path: Path, **changes: Any) -> None:
    """Changes a history and keeps its digest right: a history of another run."""
    file = history.load(path)
    history.save(path, file._replace(history=file.history._replace(**changes)))


def test_every_cell_of_a_vmapped_sweep_matches(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(["replay", f"--workdir={trained}"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"cell {cell}: match  6 rounds" for cell in range(4)]


def test_traffic_is_counted_in_both_accounts(trained: Path) -> None:
    results = xarray.load_dataset(trained / "results.nc")
    scalars = 2 * 2  # K P
    assert (results["uplink_bytes_paper"].values == 4 * scalars * 2 * np.array([0, 2, 4, 6])).all()
    assert (
        results["downlink_bytes_paper"].values[..., -1] == 8 * scalars * results["replayed_rounds"].sum("eval")
    ).all()
    assert (results["uplink_bytes"] > results["uplink_bytes_paper"]).values[..., 1:].all()


def test_equal_runs_leave_equal_histories(trained: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "again", *SWEEP) == 0
    for path in (trained / "history").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / "history" / path.name).read_bytes()


def test_one_changed_scalar_is_a_mismatch(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = history.path_of(workdir / "history", 2)
    scalars = history.load(path).history.scalars.copy()
    scalars[3, 1, 0] += 0.5
    rewrite(path, scalars=scalars)
    assert replay.main(["replay", f"--workdir={workdir}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["match", "match", "MISMATCH", "match"]
    assert "largest difference" in lines[2]


def test_another_backend_is_close(workdir: Path) -> None:
    """As if made elsewhere: the last bits of one scalar differ, and the file says where it comes from."""
    path = history.path_of(workdir / "history", 1)
    file = history.load(path)
    scalars = np.nextafter(file.history.scalars, np.float32(np.inf))
    elsewhere = file._replace(history=file.history._replace(scalars=scalars), made_by="jax 0.0.1, tpu")
    history.save(path, elsewhere)
    found = list(replay.verdicts(workdir))
    assert [verdict.word for verdict in found] == ["match", "close", "match", "match"]
    assert "made by jax 0.0.1, tpu" in found[1].detail
    history.save(path, elsewhere._replace(history=file.history._replace(scalars=scalars + 1)))
    assert verdicts(workdir)[1] == "MISMATCH"
    shutil.rmtree(workdir / "checkpoints")
    assert "no checkpoint" in list(replay.verdicts(workdir))[1].detail


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def change_an_array(path: Path) -> None:
    """A careful forger: the file is whole, one number in it is another."""
    with np.load(path) as content:
        arrays = dict(content)
    arrays["scalars"][0, 0, 0] += 1
    np.savez(path, **arrays)


def drop_an_array(path: Path) -> None:
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files if name != "rate"}
    np.savez(path, **arrays)


def pickle_inside(path: Path) -> None:
    with np.load(path) as content:
        arrays: dict[str, Any] = dict(content)
    np.savez(path, allow_pickle=True, **{**arrays, "rate": np.array([{}], object)})


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut, "cut short or no history"),
        (lambda path: path.write_bytes(b""), "cut short or no history"),
        (lambda path: flip(path, 200), "cut short or no history|was changed"),
        (change_an_array, "was changed after it was written"),
        (drop_an_array, "is no history: it holds"),
        (pickle_inside, "cut short or no history.*pickle"),
        (lambda path: rewrite(path, round=np.arange(1, 7, dtype=np.int32)), "not 0, 1, 2"),
        (lambda path: path.unlink(), "does not exist"),
    ],
    ids=["cut", "empty", "bit flipped", "changed", "array missing", "pickle", "rounds", "gone"],
)
def test_spoiled_histories_are_refused(spoil: Any, message: str, workdir: Path) -> None:
    path = history.path_of(workdir / "history", 0)
    spoil(path)
    with pytest.raises(ValueError, match=message) as error:
        history.load(path)
    assert str(path) in str(error.value)
    first = next(replay.verdicts(workdir))
    assert first.word == "MISMATCH"
    assert str(path) in first.detail


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    """Each seventh byte in turn, another bit of it: the file is refused, or says what it said."""
    ones = np.ones(3, np.float32)
    rounds = np.arange(3, dtype=np.int32)
    kept = History(rounds, np.ones((3, 2), np.uint32), np.ones((3, 1, 2), np.float32), rounds, ones)
    path = tmp_path / "cell.npz"
    history.save(path, HistoryFile(kept, "0" * 64, history.made_by()))
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            file = history.load(path)
        except ValueError:
            refused += 1
        else:
            assert file.model == "0" * 64
            assert all(np.array_equal(ours, theirs) for ours, theirs in zip(file.history, kept, strict=True))
    assert refused > len(whole) / 14


def test_a_killed_run_leaves_histories_that_rebuild_the_last_saved_round(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it writes the second checkpoint, after the histories: they are ahead, whole, and cut on resume."""
    saved = 0
    write = execution.checkpoint.save

    def killed(*arguments: Any) -> None:
        nonlocal saved
        saved += 1
        if saved == 2:
            raise KeyboardInterrupt
        write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(execution, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(execution.checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, *SWEEP)
    assert [len(history.load(path).history.round) for path in sorted((tmp_path / "history").iterdir())] == [4] * 4
    assert verdicts(tmp_path) == ["match"] * 4
    assert train(tmp_path, *SWEEP, "--resume") == 0
    assert verdicts(tmp_path) == ["match"] * 4
    for path in (trained / "history").iterdir():
        assert path.read_bytes() == (tmp_path / "history" / path.name).read_bytes()


def test_a_history_that_ends_before_its_checkpoint_is_not_resumed(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = history.path_of(workdir / "history", 0)
    file = history.load(path)
    shorter = History(*(field[:4] for field in file.history))
    history.save(path, HistoryFile(shorter, file.model, file.made_by))
    histories = history.Histories(workdir / "history", range(4))
    with pytest.raises(ValueError, match="ends after round 4, its checkpoint after 6"):
        histories.resume(6)


def test_what_cannot_be_replayed_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(["replay"]) == 1
    assert replay.main(["replay", f"--workdir={tmp_path}"]) == 1
    assert "holds no run" in capsys.readouterr().err
    assert train(tmp_path / "fedzo", "--config.algorithm.name=fedzo", "--config.num_rounds=2") == 0
    assert replay.main(["replay", f"--workdir={tmp_path / 'fedzo'}"]) == 1
    assert "keeps a history" in capsys.readouterr().err


def test_who_lags_too_far_pulls_the_model_with_its_optimiser(tmp_path: Path) -> None:
    assert train(tmp_path / "run", "--config.algorithm.max_lag=0", "--config.cohort_size=4") == 0
    results = xarray.load_dataset(tmp_path / "run" / "results.nc")
    assert results["pulled_models"].values.tolist() == [0, 4, 8, 8]
    assert results["replayed_rounds"].values.tolist() == [0] * 4
    # Three numbers of the model, six and a count of Adam: 40 bytes, for four clients in all rounds but the first.
    assert results["downlink_bytes"].values[-1] == messages.work_bytes(0, 4) * 4 * 6 + 40 * 4 * 5
    assert verdicts(tmp_path / "run") == ["match"]


@pytest.mark.parametrize("name", ["algorithm.momentum=[0.5,0.9]", "algorithm.max_lag=[0,1]"])
def test_sweeps_of_settings_that_nothing_uses_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", "--config.algorithm.name=fedzo", f"--sweep={name}") == 1
    assert "changes nothing here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config.algorithm.max_lag=-2"], "algorithm.max_lag=-2"),
        (["--config.algorithm.name=mezo"], "algorithm.local_steps=2"),
        (["--config.algorithm.name=mezo", "--config.algorithm.local_steps=1"], "num_clients=4"),
        (["--config.algorithm.optimizer=lion"], "algorithm.optimizer='lion'"),
        (["--config.algorithm.momentum=1.0"], "algorithm.momentum=1.0"),
        (["--config.algorithm.per_sample=True"], "per_sample=True"),
        (["--config.algorithm.server_optimizer=adam"], "algorithm.server_optimizer='adam' with"),
        (
            [
                "--config.algorithm.name=baffle",
                "--config.algorithm.local_steps=1",
                "--config.aggregation.name=aircomp",
                "--config.participation=gain_threshold",
            ],
            "aggregation.name='aircomp' with algorithm.name='baffle'; allowed: 'mean'",
        ),
        (["--config.algorithm.name=fedzo", "--config.aggregation.name=majority"], "only decomfl"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", *options) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--config.algorithm.name=baffle", "--config.algorithm.local_steps=1"],
        [
            "--config.algorithm.name=mezo",
            "--config.algorithm.local_steps=1",
            "--config.num_clients=1",
            "--config.cohort_size=1",
        ],
        ["--config.aggregation.name=aircomp", "--config.participation=gain_threshold"],
        ["--config.aggregation.name=majority"],
    ],
    ids=["baffle", "mezo", "aircomp", "majority"],
)
def test_relatives_are_rebuilt_too(options: list[str], tmp_path: Path) -> None:
    assert train(tmp_path / "run", *options) == 0
    assert verdicts(tmp_path / "run") == ["match"]
