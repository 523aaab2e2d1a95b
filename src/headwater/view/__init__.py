"""Views: relations whose rows come from a query over other relations.

`barrier` the epochs at which views stop, so that they meet
"""
