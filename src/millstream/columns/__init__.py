"""What can be computed of columns: expressions, partial aggregates, tables of them, kernels."""
