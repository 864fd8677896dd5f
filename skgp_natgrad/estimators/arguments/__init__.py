"""The arguments of the constructors: what is checked, documented and warned of."""
