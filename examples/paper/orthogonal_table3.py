"""Table 3 of the orthogonal paper: regression, normalised test log-likelihoods.

python examples/paper/orthogonal_table3.py [--quick] [--only-print] [--rst]
"""

import _orthogonal as orthogonal
import _paper_numbers as paper


def show(records, args):
    title = "Table 3: regression, normalised test log-likelihood (higher is better)"
    orthogonal.show_cells(title, records, "log_density", paper.TABLE3, args)


if __name__ == "__main__":
    orthogonal.table_script("regression", __doc__, show)
