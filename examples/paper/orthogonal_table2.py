"""Table 2 of the orthogonal paper: classification, a summary of the test accuracies.

python examples/paper/orthogonal_table2.py [--quick] [--only-print] [--rst]
"""

import _orthogonal as orthogonal
import _paper_numbers as paper


def show(records, args):
    title = "Table 2: classification, test accuracy (%)"
    orthogonal.show_summary(
        title, records, "accuracy", paper.TABLE5, paper.TABLE2, args, digits=1, scale=100.0, high=True
    )


if __name__ == "__main__":
    orthogonal.table_script("classification", __doc__, show)
