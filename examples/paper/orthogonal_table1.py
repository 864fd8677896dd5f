"""Table 1 of the orthogonal paper: regression, a summary of the test errors.

    python examples/paper/orthogonal_table1.py [--quick] [--only-print] [--rst]

The paper heads it MAE, but prints the means of table 4's RMSE: the RMSE is
compared with it, and the measured MAE follows.
"""

import _orthogonal as orthogonal
import _paper_numbers as paper


def show(records, args):
    title = "Table 1: regression, normalised test RMSE (headed MAE in the paper)"
    orthogonal.show_summary(title, records, "rmse", paper.TABLE4, paper.TABLE1, args)
    orthogonal.show_cells("Measured normalised test MAE", records, "mae", {}, args)


if __name__ == "__main__":
    orthogonal.table_script("regression", __doc__, show)
