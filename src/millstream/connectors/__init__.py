"""Sources and sinks, one file each; `base` has the two interfaces."""
