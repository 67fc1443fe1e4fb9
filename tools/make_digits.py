"""Makes zofed/data/digits.npz from scikit-learn's digits: `python tools/make_digits.py`.

scikit-learn is needed here only; zofed reads the file made once.
"""

import hashlib
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TEST_SIZE = 360
TARGET = Path(__file__).parent.parent / "zofed" / "data" / "digits.npz"


def stratified_test(labels: np.ndarray, size: int) -> np.ndarray:
    """`size` indices whose class shares are those of `labels`, by the largest remainder."""
    counts = np.bincount(labels)
    quota = counts * size / counts.sum()
    test_counts = np.floor(quota).astype(int)
    by_remainder = np.argsort(test_counts - quota, kind="stable")
    test_counts[by_remainder[: size - test_counts.sum()]] += 1
    generator = np.random.default_rng(0)
    chosen = [generator.permutation(np.flatnonzero(labels == c))[:n] for c, n in enumerate(test_counts)]
    return np.sort(np.concatenate(chosen))


def main() -> None:
    digits = load_digits()
    test = stratified_test(digits.target, TEST_SIZE)
    np.savez_compressed(
        TARGET,
        image=digits.images.astype(np.uint8),
        label=digits.target.astype(np.uint8),
        test_indices=test.astype(np.uint16),
    )
    print(TARGET.stat().st_size, hashlib.sha256(TARGET.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
