"""Table 5 of the orthogonal paper: classification, test accuracies.

python examples/paper/orthogonal_table5.py [--quick] [--only-print] [--rst]
"""

import _orthogonal as orthogonal
import _paper_numbers as paper


def show(records, args):
    title = "Table 5: classification, test accuracy (%)"
    orthogonal.show_cells(title, records, "accuracy", paper.TABLE5, args, digits=2, scale=100.0)


if __name__ == "__main__":
    orthogonal.table_script("classification", __doc__, show)
