"""Status and metrics: from meta, from counters, and from periodic samples.

`status` and `metrics` the results · `counters` of this process · `sampler` periodic samples · `progress` rates and
estimates · `freshness` the age of results
"""
