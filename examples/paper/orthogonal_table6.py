"""Table 6 of the orthogonal paper: classification, test log-likelihoods.

python examples/paper/orthogonal_table6.py [--quick] [--only-print] [--rst]
"""

import _orthogonal as orthogonal
import _paper_numbers as paper


def show(records, args):
    title = "Table 6: classification, test log-likelihood (higher is better)"
    orthogonal.show_cells(title, records, "log_density", paper.TABLE6, args)


if __name__ == "__main__":
    orthogonal.table_script("classification", __doc__, show)
