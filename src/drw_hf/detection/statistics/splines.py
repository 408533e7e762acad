"""What explains answers without a key: least squares on linear splines."""

import numpy as np

PIECES = 10  # of a spline, where there are probes enough


def residual(y: np.ndarray, explained_by: list[np.ndarray], pieces: int) -> tuple[np.ndarray, int]:
    """What least squares on linear splines, of so many pieces each, leaves of y; and how many coefficients it took."""
    return leftover(y, np.concatenate([hats(x, pieces) for x in explained_by], axis=1))


def leftover(y: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, int]:
    """What least squares on columns leaves of y, and their rank."""
    # Hats are nearly orthogonal, so the normal equations are safe; but every regressor's hats add up to 1, which makes
    # them singular, and lstsq takes that. The second round removes what the first left by rounding.
    gram = columns.T @ columns
    for _ in range(2):
        coefficients, _, rank, _ = np.linalg.lstsq(gram, columns.T @ y, rcond=1e-10)
        y = y - columns @ coefficients
    return y, int(rank)


def hats(x: np.ndarray, pieces: int) -> np.ndarray:
    """The linear splines of x as hat functions: 1 at one knot, 0 at the others.

    Every piece holds the same share of the probes, so ten have their knots at the deciles; ties merge knots.
    """
    knots = np.unique(np.quantile(x, np.linspace(0.0, 1.0, pieces + 1)))
    return np.stack([np.interp(x, knots, row) for row in np.eye(len(knots))], axis=1)


def pieces_for(n_probes: int, n_variables: int, per_piece: int) -> int:
    """How many pieces so many probes bear, if every piece of every variable's spline is to have its share of them."""
    return min(max(n_probes // (per_piece * n_variables), 1), PIECES)
