"""Proposals of a trained graph network: which machines might train which job, before any search.

    facts     what the network may know of jobs and machines, one row for each class of alike machines
    graph     facts as relative, scale-free features: the network's input
    network   the bundled network, read with onnxruntime
    decode    from shares to deals, in rounds, several of them
    recipe    what it says of each job's pipelines
    repair    deals made possible: memory, links that are blocked, regions
    refine    deals made better: trimmed, and completed anew from parts of themselves
    paper     the one-shot policy of the paper, to compare with

Needs numpy and onnxruntime. The network is trained by `hulk.gnn`.
"""

from hulk.propose.decode import proposals
from hulk.propose.facts import Facts
from hulk.propose.graph import Graph
from hulk.propose.network import Network, bundled_network, load_network
from hulk.propose.paper import paper_policy
from hulk.propose.refine import starts

__all__ = ["Facts", "Graph", "Network", "bundled_network", "load_network", "paper_policy", "proposals", "starts"]
