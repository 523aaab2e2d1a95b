"""Spark's optimised plan of a query as our own tree: with `engine/spark`, the only users of Spark's JVM objects.

In:  a query and the schemas of its inputs.
Out: a tree of operators (view/tree) whose expressions are columns that Spark made.
Guarantees: the tree means what Spark's plan means; whatever it cannot express becomes a tree without a root, and the
reason says what it was.
Never: reads rows.

`read` from query to tree · `operators` one plan node at a time · `aggregates`, `windows` two that need more ·
`expressions` attributes renamed, expressions as columns
"""

from headwater.view.plan.read import read_plan, run_query

__all__ = ["read_plan", "run_query"]
