"""`hulk explain` for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hulk.cost.report import JobPrice, PlanPrice
from hulk.domain.cluster import Cluster
from hulk.domain.plan import Plan
from hulk.view.price import price_json
from hulk.view.words import groups, pipeline_lines
from hulk.whatif import WhatIf


def explanation_json(plan: Plan, cluster: Cluster, price: PlanPrice, whatifs: Sequence[WhatIf]) -> dict[str, object]:
    """The price for programs, and for each job its group, its cut in words, and what would help it."""
    document: dict[str, Any] = price_json(price) | {"hulk": "explanation/1"}
    for name, found in price.jobs.items():
        if isinstance(found, JobPrice):
            own = plan.jobs[name]
            stages = [stage for pipeline in found.pipelines for stage in pipeline]
            document["jobs"][name] |= {
                "group": groups(own, cluster),
                "cut": pipeline_lines(own, found),
                "headroom_bytes": min(stage.memory.headroom for stage in stages),
                "what_if": [
                    {"text": w.text, "before_s": w.before_s, "after_s": w.after_s, "gain": w.gain}
                    for w in whatifs
                    if w.job == name
                ],
            }
    return document
