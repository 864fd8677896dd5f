"""The choice of a kernel, its hyperparameters and the scaling of X, before anything is solved."""
