"""The command `python -m experiments.run`: its files, its refusals, its exit codes."""

import contextlib
import csv
import fcntl
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray

from experiments import blackbox_tasks, build, checkpoint, execution, files, interrupt, run, sweeps, workdir
from experiments.settings import flatten, images, study
from tests import tiny
from zofed.data import Dataset

# How ml_collections loads a config file.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning"),
    pytest.mark.usefixtures("compilation_cache"),
]

CONFIGS = Path(run.__file__).parent / "configs"
TINY = [
    *tiny.STUDY,
    "--config.algorithm.num_directions=2",
    "--config.algorithm.smoothing=0.1",
]
SAME = ("results.nc", "summary.csv", "figures/learning_curves.png")
"""Files that equal runs write equal, byte by byte; timing.json is the only one that holds a time."""


def command(workdir: Path, *options: str) -> int:
    return run.main(["run", *TINY, f"--workdir={workdir}", *options])


def contents(workdir: Path) -> dict[str, bytes]:
    kept = [*SAME, *(f"checkpoints/{path.name}" for path in (workdir / "checkpoints").iterdir())]
    return {name: (workdir / name).read_bytes() for name in kept}


def rows(workdir: Path) -> list[dict[str, str]]:
    with (workdir / "summary.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_sweep_writes_all_that_the_contract_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--sweep=algorithm.local_steps=[1,2]", "--sweep=algorithm.learning_rate=[0.01,0.02]"]
    assert command(tmp_path, *options, "--sweep=seed=range(2)") == 0

    results = xarray.load_dataset(tmp_path / "results.nc")
    axes = ("algorithm.local_steps", "algorithm.learning_rate", "seed")
    assert results["train_loss"].dims == (*axes, "eval")
    assert results["round"].values.tolist() == [0, 2, 4]
    assert results["algorithm.learning_rate"].values.tolist() == [0.01, 0.02]
    assert results.attrs["complete"] == 1
    assert all({"units", "long_name"} <= results[name].attrs.keys() for name in ("train_loss", "uplink_bytes"))
    assert np.isfinite(results["train_loss"]).all()

    # Two participants a round exchange five float32.
    assert results["uplink_bytes"].dtype == np.int64
    assert (results["uplink_bytes"].values == np.array([0, 80, 160])).all()
    assert (results["downlink_bytes"].values == results["uplink_bytes"].values).all()
    assert (results["mean_cohort_size"].values == np.array([0, 2, 2])).all()
    assert (results["nonfinite"].values == 0).all()

    table = rows(tmp_path)
    assert [row["status"] for row in table] == ["ok"] * 8
    assert table[5]["algorithm.local_steps"] == "2"
    assert table[5]["seed"] == "1"
    cell = results["train_loss"].values[1, 0, 1]
    assert float(table[5]["final_train_loss"]) == pytest.approx(cell[-1])
    assert float(table[5]["best_train_loss"]) == pytest.approx(cell.min())

    described = json.loads((tmp_path / "config.json").read_text())
    assert described["config"]["algorithm"]["smoothing"] == 0.1
    assert described["sweep"]["algorithm.local_steps"] == [1, 2]
    assert described["versions"]["jax"]
    (process,) = json.loads((tmp_path / "timing.json").read_text())["processes"]
    assert [group["rounds"] for group in process["groups"]] == [4, 4]
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"learning_curves.png", "heat_map.png"}
    assert not list(tmp_path.rglob("*.partial*"))

    output = capsys.readouterr().out
    assert output.startswith("cells: 8 in 2 groups | devices: 4 x cpu |")
    assert str(tmp_path / "results.nc") in output
    assert str(tmp_path / "figures" / "heat_map.png") in output


def test_equal_seeds_make_equal_files_and_others_do_not(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert command(tmp_path / name) == 0
    assert command(tmp_path / "other", "--config.seed=1") == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    losses = [xarray.load_dataset(tmp_path / name / "results.nc")["train_loss"].values for name in ("one", "other")]
    assert (losses[0][1:] != losses[1][1:]).all()


@contextlib.contextmanager
def interrupted_at(question: int) -> Iterator[Callable[[], bool]]:
    """Stands in for `interrupt.on_request`: the run asks before each segment and after each group."""
    asked = 0

    def requested() -> bool:
        nonlocal asked
        asked += 1
        return asked >= question

    yield requested


TWO_GROUPS = ["--sweep=seed=range(2)", "--sweep=algorithm.local_steps=[1,2]"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("whole") / "run"
    assert command(workdir, *TWO_GROUPS) == 0
    return workdir


@pytest.mark.parametrize("question", [1, 2, 4, 5])
def test_an_interrupted_and_resumed_run_is_the_run(
    question: int,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = TWO_GROUPS
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(interrupt, "on_request", lambda kept: interrupted_at(question))
        assert command(workdir, *options) == 130
    kept = {1: "0 of group 1", 2: "2 of group 1", 4: "0 of group 2", 5: "2 of group 2"}[question]
    assert checkpoint.standing(workdir) == f"--resume goes on after round {kept}"
    assert f"--workdir={workdir} --sweep=seed=range" in capsys.readouterr().out.replace("'", "")
    partial = xarray.load_dataset(workdir / "results.nc")
    assert partial.attrs["complete"] == 0
    assert partial["rounds_played"].values.max() == {1: 0, 2: 2, 4: 4, 5: 4}[question]
    assert command(workdir, *options, "--resume") == 0
    assert contents(workdir) == contents(whole)
    before = contents(workdir)
    assert command(workdir, *options, "--resume") == 0
    assert contents(workdir) == before


def test_a_workdir_keeps_to_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path) == 0
    before = contents(tmp_path)
    assert command(tmp_path) == 1
    assert "go on with --resume" in capsys.readouterr().err
    assert command(tmp_path, "--resume", "--config.seed=7", "--sweep=algorithm.smoothing=[0.1]") == 1
    message = capsys.readouterr().err
    assert "seed is 0 there, 7 here" in message
    assert "--sweep algorithm.smoothing is not set there, [0.1] here" in message
    assert contents(tmp_path) == before

    (tmp_path / "checkpoints" / "group_000.msgpack").write_bytes(b"\x00")
    assert command(tmp_path, "--resume") == 1
    assert "group_000.msgpack is damaged" in capsys.readouterr().err

    other = tmp_path / "figures"
    assert command(other) == 1
    assert "holds other files" in capsys.readouterr().err

    for inside in ("", "deeper/run"):
        assert command(tmp_path / "summary.csv" / inside) == 1
        assert "summary.csv is a file; give a directory" in capsys.readouterr().err


HOLD = """
import json, sys
from pathlib import Path
from experiments import workdir
with workdir.claim(Path(sys.argv[1]), json.loads(sys.argv[2]), False):
    print("there", flush=True)
    sys.stdin.read()
"""


def test_a_workdir_in_use_is_refused_and_free_once_its_process_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    config = run.parse(["run", *TINY], run._flags).config
    description = workdir.describe(config, sweeps.parse([], config))
    arguments = [sys.executable, "-c", HOLD, str(path), json.dumps(description)]
    root = Path(run.__file__).parent.parent
    with subprocess.Popen(arguments, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        with monkeypatch.context() as patch:
            patch.setattr(execution, "run", None)  # refused before anything compiles
            for option in ("--noresume", "--resume"):
                assert command(path, option) == 1
                error = capsys.readouterr().err
                assert error.startswith(f"error: --workdir={path} is in use by process {process.pid}; wait for its end")
        process.kill()
    assert sorted(place.name for place in path.iterdir()) == [".lock", "config.json"]
    assert command(path, "--resume") == 0
    assert (path / ".lock").read_text() == ""


def test_a_file_system_without_locks_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: object, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with workdir.claim(tmp_path, {"config": {}, "sweep": {}, "versions": {}}, False) as warnings:
        assert len(warnings) == 1
        assert "cannot be locked ([Errno 38] Function not implemented)" in warnings[0]


@pytest.mark.parametrize("damaged", ["", "[]", '{"processes": 3}', "\x00"])
def test_damaged_times_are_written_anew(damaged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "timing.json"
    path.write_text(damaged)
    run._write_timing(path, [])
    assert capsys.readouterr().err.startswith(f"warning: {path} cannot be read (")
    run._write_timing(path, [])
    assert capsys.readouterr().err == ""
    assert json.loads(path.read_text()) == {"processes": [{"groups": []}] * 2}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--config.typo=1", "no setting 'typo'"),
        ("--config.algorithm.lerning_rate=1", "Did you mean"),
        ("--config.seed=x", "config.seed"),
        ("--bogus", "bogus"),
        ("surplus", "no options"),
        ("--config.algorithm.learning_rate=-1", "learning_rate=-1.0; allowed: a finite number > 0"),
        ("--config.algorithm.learning_rate=nan", "learning_rate=nan"),
        ("--config.algorithm.smoothing=0", "smoothing=0.0"),
        ("--config.algorithm.batch_size=0", "batch_size=0"),
        ("--config.algorithm.local_steps=0", "local_steps=0"),
        ("--config.algorithm.num_directions=-3", "num_directions=-3"),
        ("--config.algorithm.directions=cube", "algorithm.directions='cube'; allowed: 'coordinate', "),
        ("--config.algorithm.name=sgd", "algorithm.name='sgd'"),
        ("--config.aggregation.name=sum", "aggregation.name='sum'"),
        ("--config.data.batching=all", "data.batching='all'"),
        ("--config.cohort_size=4", "cohort_size=4; allowed: an integer from 1 to 3 (num_clients)"),
        ("--config.eval_every=3", "eval_every=3; allowed: a divisor of num_rounds=4"),
        ("--config.seed=-1", "seed=-1"),
        ("--config.execution.num_devices=99", "execution.num_devices=99"),
        ("--sweep=algorithm.learning_rate=[0.1,-0.1]", "learning_rate=-0.1"),
        ("--sweep=cohort_size=[2,9]", "cohort_size=9"),
        ("--sweep=learning_rat=[1.0]", "near ones: algorithm.learning_rate"),
        ("--sweep=smoothing=[1.0]", "near ones: algorithm.smoothing"),
        ("--sweep=seed=[0.5]", "seed has the value 0.5; allowed: int"),
        ("--sweep=seed=[True]", "seed has the value True"),
        ("--sweep=seed=[1,1]", "a value twice"),
        ("--sweep=seed=[]", "no value"),
        ("--sweep=seed", "write NAME=VALUES"),
        ("--sweep=seed=__import__('os').getpid()", "cannot be read"),
        ("--sweep=num_rounds=[2,4]", "the same in all cells"),
        ("--sweep=seed=range(1000000000)", "of a million at most"),
        ("--sweep=algorithm.learning_rate=[0.1,0.10000000001]", "values that are the same float32"),
        ("--sweep=channel.snr_db=[0.0,1.0]", "channel.snr_db changes nothing here"),
        ("--config.algorithm.learning_rate=1e300", "allowed: a number within float32"),
        ("--config.channel.noise=none", "channel.noise='none'; allowed: 'full', 'real_part'"),
        ("--config.aggregation.name=aircomp", "participation='uniform' with aggregation.name='aircomp'"),
        ("--config=README.md", "the file cannot be loaded"),
        ("--config=experiments/no_such_config.py", "no_such_config.py"),
        ("--config.data.dim=0", "dim=0; allowed: an integer from 1 up"),
        ("--config.data.name=digits", "needs settings that this config has not, such as data.model"),
        ("--config.data.name=cifar", "data.name='cifar'; allowed: 'cifar10', 'cifar10_attack', 'digits'"),
    ],
)
def test_wrong_options_say_so_and_touch_nothing(
    option: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path / "run", option) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.out == ""
    assert not (tmp_path / "run").exists()


def test_workdir_is_needed_and_help_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["run"]) == 1
    assert "--workdir=DIR is missing" in capsys.readouterr().err
    assert run.main(["run", "--help"]) == 0
    assert "--sweep" in capsys.readouterr().out


def test_a_diverged_cell_is_marked_and_the_others_are_ok(tmp_path: Path) -> None:
    assert command(tmp_path, "--sweep=algorithm.learning_rate=[0.01,1e30]") == 0
    assert [row["status"] for row in rows(tmp_path)] == ["ok", "diverged"]
    results = xarray.load_dataset(tmp_path / "results.nc")
    assert results["diverged"].values.tolist() == [False, True]
    assert np.isfinite(results["train_loss"].values[0]).all()


def test_round_off_is_warned_of_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, "--config.algorithm.smoothing=1e-9") == 0
    assert capsys.readouterr().err.count("round-off dominates") == 1


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("[3, 1]", (3.0, 1.0)),
        ("(0.5,)", (0.5,)),
        ("range(1, 4)", (1.0, 2.0, 3.0)),
        ("linspace(0, 1, 3)", (0.0, 0.5, 1.0)),
        ("logspace(-3, -1, 3)", (0.001, 0.01, 0.1)),
    ],
)
def test_forms_of_an_axis(expression: str, values: tuple[float, ...]) -> None:
    grid = sweeps.parse([f"algorithm.learning_rate={expression}"], study(images("digits")))
    assert grid.axes[0].values == values


def test_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail() -> None:
        with files.replacing(path) as beside:
            beside.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_checkpoint_of_other_shapes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "group.msgpack"
    assert checkpoint.load(path, {"x": np.zeros(3)}) is None
    saved = checkpoint.Checkpoint(2, {"x": np.arange(3.0)}, {"loss": np.ones((3, 2))})
    checkpoint.save(path, saved)
    loaded = checkpoint.load(path, {"x": np.zeros(3)})
    assert loaded is not None
    assert loaded.round == 2
    np.testing.assert_array_equal(loaded.states["x"], saved.states["x"])
    np.testing.assert_array_equal(loaded.records["loss"], saved.records["loss"])
    for other in (np.zeros(4), np.zeros(3, np.int32)):
        with pytest.raises(ValueError, match="other shapes or dtypes"):
            checkpoint.load(path, {"x": other})
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"group\.msgpack is damaged"):
            checkpoint.load(path, {"x": np.zeros(3)})


@pytest.mark.parametrize("partition", build.PARTITIONS)
def test_every_partition_makes_a_task(partition: str) -> None:
    config = study(images("digits", partition=partition))
    config.num_clients = 5
    config.cohort_size = 5
    build.check(config)
    assert build.task_of(config).data.clients.num_clients == 5
    assert build.task_of(config) is build.task_of(config)


def test_partition_that_cannot_be_is_refused_before_anything_compiles() -> None:
    config = study(images("digits"))
    config.num_clients = 1000
    with pytest.raises(ValueError, match="num_clients=1000"):
        build.check(config)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        (
            "model",
            "lenet",
            r"takes images of \(32, 32, 3\); those of data.name='digits' are \(8, 8\); allowed: 'softmax'",
        ),
        ("model", "vgg", "data.model='vgg'; allowed: 'fashion_cnn'"),
        ("normalisation", "unit", "data.normalisation='unit'; allowed: 'none', 'published'"),
        ("normalisation", "published", "data.name='digits'; allowed: 'none'"),
    ],
)
def test_models_that_do_not_go_with_the_data_are_refused(setting: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build.check(study(images("digits", **{setting: value})))


NAMES = sorted(path.stem for path in CONFIGS.glob("[!_]*.py"))
SLOW = {name: [pytest.mark.slow] for name in NAMES if name.endswith("_recorded")}
"""Compiles a network once more, for another optimiser."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, [])) for name in NAMES])
def test_every_config_plays_two_rounds(name: str, tmp_path: Path, load_real: Callable[[str], Dataset]) -> None:
    module = importlib.import_module(f"experiments.configs.{name}")
    assert f"python -m experiments.run --config=experiments/configs/{name}.py" in (module.__doc__ or "")
    config = module.get_config()
    if config.data.name in blackbox_tasks.NAMES:
        pytest.importorskip("sklearn")
    if config.data.name in ("cifar10", "cifar10_attack", "fashion_mnist", "mnist"):
        load_real(config.data.name.removesuffix("_attack"))
        if "keep_every" in config.data:  # evaluating a convolutional network on all images takes seconds
            config.data.keep_every = 100
    config.num_rounds = 2
    config.eval_every = 1
    config.algorithm.local_steps = 1
    config.algorithm.num_directions = 1
    config.algorithm.batch_size = 1
    assert run.run(config, [], tmp_path) == 0
    assert flatten(config)["num_rounds"] == 2
    results = xarray.load_dataset(tmp_path / "results.nc")
    assert results["rounds_played"] == 2
    assert np.isfinite(results["train_loss"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_cleanly_and_the_printed_command_goes_on(number: int, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "experiments.run", *TINY, "--config.num_rounds=200000"]
    arguments += ["--config.eval_every=1000", f"--workdir={tmp_path / 'run'}"]
    root = Path(run.__file__).parent.parent
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    process = subprocess.Popen(arguments, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("cells: 1 ")
    time.sleep(1.0)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output.splitlines()[-1].endswith("--resume")
    played = int(xarray.load_dataset(tmp_path / "run" / "results.nc")["rounds_played"])
    assert 0 < played < 200_000


@pytest.mark.slow
def test_a_second_signal_ends_a_run_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "experiments.run", *TINY, "--config.num_rounds=4000000"]
    arguments += ["--config.eval_every=2000000", f"--workdir={tmp_path / 'run'}"]
    root = Path(run.__file__).parent.parent
    with subprocess.Popen(arguments, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("cells: 1 ")
        assert process.stderr is not None
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("stopping after this segment")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=10)
    assert process.returncode == 1
    assert error == "\nstopped at once; no round is saved yet\n"
    assert {path.name for path in (tmp_path / "run").rglob("*")} == {".lock", "config.json"}
