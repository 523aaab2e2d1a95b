"""Where everything stands: what meta says, what is counted on the way, and what is looked at now and then.

`status` and `metrics` the answers · `counters` counted here · `sampler` looked at by itself · `progress` rates and
estimates · `freshness` how old answers are
"""
