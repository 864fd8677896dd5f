"""Table 4 of the orthogonal paper: regression, normalised test RMSE.

python examples/paper/orthogonal_table4.py [--quick] [--only-print] [--rst]
"""

import _orthogonal as orthogonal
import _paper_numbers as paper


def show(records, args):
    title = "Table 4: regression, normalised test RMSE (lower is better)"
    orthogonal.show_cells(title, records, "rmse", paper.TABLE4, args)


if __name__ == "__main__":
    orthogonal.table_script("regression", __doc__, show)
