"""Capture: the one process per connection that reads its upstream's log and writes the changelog.

In: a log (`source.base.Log`). Out: published segments, the connection's state and position in meta, a line on stdout
for each publication.
Guarantees: it needs no Spark, no server and no other connection; memory is bounded whatever the upstream sends; what
was not published comes again after the next start. Never: decodes values, or waits for a query. It pauses
while the server says that folds must catch up.

`process` the program · `receive` from the flow to the writer · `liveness` its sign of life · `until` where it may end
"""
