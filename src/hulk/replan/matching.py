"""The assignment problem: every row gets a column of its own, and the sum of what that costs is the least there is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def match(costs: NDArray[np.float64]) -> list[int]:
    """The column of each row [R, C], R ≤ C, with the least sum.

    Rows come in one after the other. A row that finds its columns taken pushes others on along the cheapest chain of
    changes, which prices on rows and columns (what is left of a cost after both is never negative) lead to: some R × C
    operations a row at most, few of them where rows want different columns.
    """
    rows, columns = costs.shape
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    owner = np.full(columns, -1)
    for row in range(rows):
        distance = np.full(columns, np.inf)  # of the cheapest chain of changes from this row to a column
        before = np.full(columns, -1)  # the column ahead in that chain
        seen = np.zeros(columns, np.bool_)
        at, last, length = row, -1, 0.0
        while True:
            ways = length + costs[at] - row_price[at] - column_price
            shorter = ~seen & (ways < distance)
            distance[shorter], before[shorter] = ways[shorter], last
            open_ways = np.where(seen, np.inf, distance)
            length = float(open_ways.min())
            ends = np.flatnonzero(open_ways == length)
            free = ends[owner[ends] < 0]
            last = int(free[0] if len(free) else ends[0])
            seen[last] = True
            if len(free):
                break
            at = int(owner[last])
        reached = np.flatnonzero(seen & (owner >= 0))
        row_price[row] += length
        row_price[owner[reached]] += length - distance[reached]
        column_price[reached] -= length - distance[reached]
        while last >= 0:
            ahead = int(before[last])
            owner[last] = row if ahead < 0 else owner[ahead]
            last = ahead
    found = [0] * rows
    for column in np.flatnonzero(owner >= 0).tolist():
        found[int(owner[column])] = column
    return found
