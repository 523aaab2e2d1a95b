"""Status and metrics: from meta, from counters, and from periodic samples.

`status` and `metrics` the results · `sampler` periodic samples · `progress` rates and estimates · `views` how far they
are
In: meta, `engine.counters`, the running server. Out: values for commands and for HTTP. Never: changes meta, or needs
Spark.
"""
