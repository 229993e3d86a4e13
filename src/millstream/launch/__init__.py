"""Start workers somewhere and drive a job to its end.

`job` is what users hold; `local`, `processes` and `spark` start workers.  Only `spark`
imports pyspark.
"""
