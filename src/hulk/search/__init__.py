"""The search for plans: who trains what, cut how.

Reading order: `skeleton` (what is searched), `fit` (a skeleton becomes a plan and a price, compiled), `evaluate` (the
same for names), `recipes` and `dealing` (who gets which machines), `reshape` and `polish` (pipelines improved).
"""
