"""Measurements of speed: ratios within one run, medians of several repeats, compile time apart."""
