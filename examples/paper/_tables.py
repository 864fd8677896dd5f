"""The orthogonal paper's tables 1 to 6 as text."""

TASKS = {
    1: "regression",
    3: "regression",
    4: "regression",
    2: "classification",
    5: "classification",
    6: "classification",
}


def table(number, wanted, found):
    """A line on how far a table is."""
    return f"Table {number}: {len(found)} of {len(wanted)} fits."
