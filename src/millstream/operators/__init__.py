"""What a task does to a batch; `base` has the interface, `build` makes a chain."""
