"""The variational family and its bound: pure functions of arrays."""
