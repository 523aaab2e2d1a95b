"""Materialized views: what a query stores, and how its rows follow the changes of its inputs.

In:  a query, the schemas of its inputs, and these inputs as DataFrames at two epochs with their signed change.
Out: the view's stored rows from scratch, or their signed change (delta).
Guarantees: the stored rows after a change equal those from scratch; their key is unique, NULL compared to NULL;
what has no incremental rule is recomputed, and the reason is given.
Never: runs a Spark job, knows an epoch, or decides when a view moves (engine/).

`inputs` what a query may see · `plan` Spark's plan as a tree · `tree`, `build` operators and what identifies their
rows · `rules` which rule maintains each · `shape` what is stored · `frames` operators as DataFrames · `changes`,
`joins`, `groups` their signed rows · `delta` a view's own · `signed` its runs · `images` rows as they were before ·
`reading` what a reader sees · `slices` how a fill can be cut · `barrier` where views meet · `cost` when to recompute
"""

from headwater.view.changes import Moved
from headwater.view.delta import Step, difference, recompute, refresh
from headwater.view.plan import read_plan
from headwater.view.shape import Shape, StoredColumn, shape
from headwater.view.slices import Slices, combined, partial, slice_of, slices
from headwater.view.tree import InputColumn, InputSchema, Tree

__all__ = [
    "InputColumn",
    "InputSchema",
    "Moved",
    "Shape",
    "Slices",
    "Step",
    "StoredColumn",
    "Tree",
    "combined",
    "difference",
    "partial",
    "read_plan",
    "recompute",
    "refresh",
    "shape",
    "slice_of",
    "slices",
]
