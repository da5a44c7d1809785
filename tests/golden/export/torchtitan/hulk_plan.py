"""A plan as a config of torchtitan 0.3.0: --module hulk_plan --config plan. Written by `hulk export`.

Everything that is not of the plan (data, tokenizer, checkpoints) is torchtitan's default for this model; change it
here, or on the command line.
"""

from dataclasses import replace

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

PARALLELISM = {
    'data_parallel_replicate_degree': 2,
    'data_parallel_shard_degree': 2,
    'tensor_parallel_degree': 2,
    'pipeline_parallel_degree': 2,
    'context_parallel_degree': 2,
    'enable_sequence_parallel': True,
    'fsdp_reshard_after_forward': 'always',
    'pipeline_parallel_schedule': '1F1B',
    'pipeline_parallel_microbatch_size': 1,
    'module_fqns_per_model_part': [
        ['tok_embeddings', 'layers.0', 'layers.1', 'layers.2', 'layers.3', 'layers.4', 'layers.5', 'layers.6', 'layers.7', 'layers.8', 'layers.9', 'layers.10', 'layers.11', 'layers.12', 'layers.13'],
        ['layers.14', 'layers.15', 'layers.16', 'layers.17', 'layers.18', 'layers.19', 'layers.20', 'layers.21', 'layers.22', 'layers.23', 'layers.24', 'layers.25', 'layers.26', 'layers.27', 'layers.28', 'layers.29', 'layers.30', 'layers.31', 'norm', 'lm_head'],
    ],
}

TRAINING = {
    'local_batch_size': 16,
    'global_batch_size': 64,
    'seq_len': 4096,
    'steps': 20,
    'mixed_precision_param': 'bfloat16',
    'disable_cuda_graphs': True,
}

ROTATION = {
    'theta': 500000.0,
    'scaling': 'none',
}


def plan() -> Trainer.Config:
    """The config."""
    model_spec = model_registry('8B')
    for layer in model_spec.model.layers:
        layer.attention.rope = replace(layer.attention.rope, **ROTATION)
    return Trainer.Config(
        model_spec=model_spec,
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        ),
        hf_assets_path='./assets/hf',
        optimizer=default_adamw(lr=0.001),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
        parallelism=ParallelismConfig(**PARALLELISM),
        training=TrainingConfig(**TRAINING),
        activation_checkpoint=SelectiveAC.Config(),
        debug=DebugConfig(seed=0),
    )
