"""PostgreSQL's values: pgoutput messages and ADBC batches → lake values. `decode.dialects` reads its functions."""
