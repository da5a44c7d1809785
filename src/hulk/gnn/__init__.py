"""The graph network's training: scenes drawn by seed, labels from the planner's own search, the network, its export.

    generator  clusters and jobs, drawn by seed
    labels     near-best plans of the planner as tables of counts, in shards
    parts      scenes within scenes
    batches    examples as padded tensors, a random part of a plan revealed
    model      the network, in PyTorch Geometric
    train      masked completion
    judge      proposals priced by the search
    export     ONNX and the model card

Needs the extra `train`, all but `generator` and `labels`.
"""
