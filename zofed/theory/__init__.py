"""Convergence theory beside the runs: bounds term by term, constants of a task, spectra of Hessians."""

from zofed.theory import closed_forms
from zofed.theory.bounds import Bound, Moments, Terms, fedzo, fedzo_aircomp, fedzo_full, moments
from zofed.theory.complexity import Complexity, cheaper_effective_rank, complexity_table
from zofed.theory.constants import envelope, estimate, gradient_moments
from zofed.theory.decomfl_bounds import decomfl, decomfl_low_rank, decomfl_low_rank_printed, decomfl_printed
from zofed.theory.hessian import gradient_norm, hessian_vector, lanczos, largest_eigenvalue
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
from zofed.theory.rates import Exponent, fit_exponent
from zofed.theory.spectrum import Measured, Spectrum, hessian_spectrum, spectrum

__all__ = [
    "Bound",
    "Complexity",
    "Constants",
    "Exponent",
    "Measured",
    "Moments",
    "Participation",
    "Rate",
    "Setting",
    "Spectrum",
    "Terms",
    "balancing_smoothing",
    "cheaper_effective_rank",
    "closed_forms",
    "cohort",
    "complexity_table",
    "decomfl",
    "decomfl_low_rank",
    "decomfl_low_rank_printed",
    "decomfl_printed",
    "envelope",
    "estimate",
    "fedzo",
    "fedzo_aircomp",
    "fedzo_full",
    "fit_exponent",
    "gradient_moments",
    "gradient_norm",
    "hessian_spectrum",
    "hessian_vector",
    "lanczos",
    "largest_eigenvalue",
    "largest_local_steps",
    "largest_local_steps_in_text",
    "learning_rate",
    "moments",
    "rate",
    "rounds_for",
    "smallest_receive_snr",
    "smoothing",
    "spectrum",
    "threshold_cohort",
]
