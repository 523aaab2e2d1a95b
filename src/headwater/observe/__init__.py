"""Observation: the metrics of a home as text, served to whoever scrapes them.

In: metrics as values (`engine/status/metrics`). Out: Prometheus' text format over HTTP, on the loopback address only.
Promises: a scrape asks no upstream and changes nothing. Never: a row's value, a secret, another path than `/metrics`.

`exposition` values to text · `endpoint` the HTTP server.
"""
