"""Convergence theory beside the runs: bounds term by term, constants of a task, spectra of Hessians."""

from zofed.theory.bounds import Bound, Moments, Terms, fedzo, fedzo_aircomp, fedzo_full, moments
from zofed.theory.complexity import Complexity, cheaper_effective_rank, table
from zofed.theory.decomfl_bounds import decomfl, decomfl_low_rank, decomfl_low_rank_printed, decomfl_printed
from zofed.theory.prescriptions import (
    Rate,
    balancing_smoothing,
    largest_local_steps,
    largest_local_steps_in_text,
    learning_rate,
    rate,
    rounds_for,
    smallest_receive_snr,
    smoothing,
)
from zofed.theory.problem import Constants, Participation, Setting, cohort, threshold_cohort

__all__ = [
    "Bound",
    "Complexity",
    "Constants",
    "Moments",
    "Participation",
    "Rate",
    "Setting",
    "Terms",
    "balancing_smoothing",
    "cheaper_effective_rank",
    "cohort",
    "decomfl",
    "decomfl_low_rank",
    "decomfl_low_rank_printed",
    "decomfl_printed",
    "fedzo",
    "fedzo_aircomp",
    "fedzo_full",
    "largest_local_steps",
    "largest_local_steps_in_text",
    "learning_rate",
    "moments",
    "rate",
    "rounds_for",
    "smallest_receive_snr",
    "smoothing",
    "table",
    "threshold_cohort",
]
