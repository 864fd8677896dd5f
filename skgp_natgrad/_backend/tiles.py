"""A symmetric matrix in single precision for repeated products: square tiles of its lower triangle."""

from __future__ import annotations

import numpy as np

# A tile of this many rows stays in a processor's cache, where it is multiplied by both sides.
_ROWS = 1024


class Tiles:
    """Square tiles of the lower triangle of a symmetric matrix (N, N).

    Parameters
    ----------
    block : callable
        Of two arrays of positions (B,): the matrix of these rows and columns, (B, B).
    n_rows : int
    """

    def __init__(self, block, n_rows):
        self.n_rows = n_rows
        # All of one size, so that one program makes them: those at the end repeat the last row.
        at = [np.minimum(np.arange(start, start + _ROWS), n_rows - 1) for start in range(0, n_rows, _ROWS)]
        lower = [(i, j) for i in range(len(at)) for j in range(i + 1)]
        self._tiles = [(i, j, np.asarray(block(at[i], at[j]), np.float32)) for i, j in lower]

    @staticmethod
    def n_bytes(n_rows):
        """The memory that they take."""
        n_tiles = -(-n_rows // _ROWS)
        return 4 * _ROWS**2 * n_tiles * (n_tiles + 1) // 2

    def __matmul__(self, V):
        """The product (N, C) with ``V`` (N, C): in double precision but for the sums within a tile."""
        missing = -len(V) % _ROWS
        parts = np.pad(V, ((0, missing), (0, 0))).astype(np.float32).reshape(-1, _ROWS, V.shape[1])
        product = np.zeros(parts.shape)
        for i, j, tile in self._tiles:
            product[i] += tile @ parts[j]
            if i != j:
                product[j] += tile.T @ parts[i]
        return product.reshape(-1, V.shape[1])[: self.n_rows]
