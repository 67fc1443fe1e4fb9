"""Figures of the papers, one command each: `python -m experiments.figures.NAME --workdir=DIR [--quick | --cpu]`."""
