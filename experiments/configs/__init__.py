"""Configs of experiments, one study per file: `python -m experiments.run --config=experiments/configs/NAME.py`."""
