"""The arguments of the constructors: what is checked, suggested, documented and told of them."""
