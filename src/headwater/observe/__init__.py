"""Observation: the metrics of a home as text, served to scrapers.

In: metrics as values (`engine/status/metrics`). Out: Prometheus text format over HTTP, on the loopback address only.
Guarantees: a scrape contacts no upstream and changes nothing. Never: a row's value, a secret, a path other than
`/metrics`.

`exposition` values to text · `endpoint` the HTTP server.
"""
