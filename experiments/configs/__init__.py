"""Configs, one study per file, for `python -m experiments.run --config=experiments/configs/NAME.py`."""
