"""Which of SGLang's arguments a pair file may set: an untrusted one must not get further by them than by its models.

Everything else is refused, so that an argument of a later release is refused too until it has been looked at. None of
these runs code, reaches other machines, takes other weights or another tokenizer, or names a file to read, write or
delete. Source: the fields of `sglang.srt.server_args.ServerArgs` and where they are used, in SGLang 0.5.23;
`suites/sglang/test_allowed.py` holds the list to the installed release.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import InputError

__all__ = ["ALLOWED", "require_allowed"]

_PARALLEL = """
    tp_size dcp_size pp_size dp_size ep_size attn_dp_size attn_cp_size moe_dp_size dwdp_size moe_dense_tp_size
    pp_max_micro_batch_size pp_async_batch_depth load_balance_method dist_timeout dcp_comm_backend
    dcp_replicate_q_proj cp_strategy enable_prefill_cp enable_dp_attention enable_dp_lm_head
    enable_tp_lm_head_all_to_all enable_attn_tp_input_scattered enable_p2p_check disable_attn_tp_gather gpu_id_step
    numa_node
"""
_MODEL = """
    context_length quantization kv_cache_dtype enable_fp32_lm_head enable_tf32_matmul enable_multimodal
    weight_loader_disable_mmap weight_loader_prefetch_checkpoints weight_loader_prefetch_num_threads
    weight_loader_drop_cache_after_load cpu_offload_gb offload_group_size offload_num_in_group offload_prefetch_step
"""
_SPECULATION = """
    speculative_attention_mode speculative_draft_attention_backend speculative_draft_kv_cache_dtype
    speculative_draft_model_quantization speculative_draft_sink_size speculative_draft_window_size
    speculative_dsa_topk_backend speculative_moe_a2a_backend speculative_moe_runner_backend
    speculative_accept_threshold_acc speculative_accept_threshold_single
"""
_KERNELS = """
    attention_backend decode_attention_backend prefill_attention_backend mm_attention_backend sampling_backend
    grammar_backend fp8_gemm_runner_backend fp4_gemm_runner_backend bf16_gemm_backend dsa_prefill_backend
    dsa_decode_backend dsa_paged_mqa_logits_backend dsa_topk_backend dsa_triton_union dsv4_attn_backend
    dsv4_prefill_backend disable_flashinfer_autotune flashinfer_mla_disable_ragged enable_fused_qk_norm_rope
    enable_lean_attention triton_attention_num_kv_splits triton_attention_reduce_in_fp32
    triton_attention_split_tile_size mamba_backend mamba_ssm_dtype mamba_radix_cache_strategy mamba_track_interval
    mamba_max_states_per_path linear_attn_backend linear_attn_decode_backend linear_attn_prefill_backend
    linear_attn_verify_backend enable_deterministic_inference
"""
_EXPERTS = """
    moe_a2a_backend moe_runner_backend flashinfer_mxfp4_moe_precision deepep_mode deepep_dispatcher_output_dtype
    enable_fused_moe_sum_all_reduce ep_num_redundant_experts ep_dispatch_algorithm enable_eplb eplb_algorithm
    eplb_rebalance_num_iterations eplb_rebalance_layers_per_chunk eplb_min_rebalancing_utilization_threshold
    disable_shared_experts_fusion enforce_shared_experts_fusion disable_flashinfer_cutlass_moe_fp4_allgather
"""
_EXECUTION = """
    disable_cuda_graph disable_cuda_graph_padding disable_decode_cuda_graph disable_prefill_cuda_graph
    cuda_graph_bs cuda_graph_max_bs cuda_graph_backend_decode cuda_graph_backend_prefill cuda_graph_bs_decode
    cuda_graph_bs_prefill cuda_graph_max_bs_decode cuda_graph_max_bs_prefill cuda_graph_max_seq_len_prefill
    enable_torch_compile torch_compile_max_bs disable_custom_all_reduce enable_mscclpp enable_nccl_nvls
    enable_symm_mem enable_torch_symm_mem pre_warm_nccl boundary_reduction speculative_boundary_reduction
    enable_flashinfer_allreduce_fusion enforce_disable_flashinfer_allreduce_fusion
    flashinfer_allreduce_fusion_backend enable_aiter_allreduce_fusion enable_single_batch_overlap
    enable_two_batch_overlap tbo_token_distribution_threshold
"""
_SCHEDULE = """
    mem_fraction_static max_running_requests max_queued_requests max_total_tokens max_prefill_tokens
    prefill_max_requests chunked_prefill_size prefill_decode_interval enable_dynamic_chunking enable_mixed_chunk
    schedule_policy schedule_conservativeness retraction_policy page_size swa_full_tokens_ratio
    disable_hybrid_swa_memory disable_chunked_prefix_cache disable_overlap_schedule num_continuous_decode_steps
    scheduler_recv_interval max_mamba_cache_size mamba_full_memory_ratio disable_radix_cache radix_eviction_policy
    enable_page_major_kv_layout enable_hierarchical_cache hicache_ratio hicache_size hicache_write_policy
    hicache_io_backend hicache_mem_layout
"""
_OTHER = (
    "random_seed stream_interval watchdog_timeout soft_watchdog_timeout sleep_on_idle log_level decode_log_interval"
)

ALLOWED = frozenset(
    " ".join((_PARALLEL, _MODEL, _SPECULATION, _KERNELS, _EXPERTS, _EXECUTION, _SCHEDULE, _OTHER)).split()
)
"""The arguments that a pair file may set: sizes, switches, and names that SGLang chooses from a list of its own."""

# The name of a backend, a dtype or a policy: no path, no address, no dotted name of a class.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,63}")


def require_allowed(arguments: Mapping[str, Any], file: Path) -> None:
    """Refuse arguments that a pair file may not set.

    Args:
        arguments: `engine.args`.
        file: The pair file, for the message.

    Raises:
        InputError: One is not among them, or has a value that is not a number, a switch, a word or a list of integers.
    """
    for name, value in arguments.items():
        if name not in ALLOWED:
            close = difflib.get_close_matches(name, ALLOWED, n=1, cutoff=0.85)
            raise InputError(
                "a pair file cannot set this argument of SGLang",
                file=file,
                key=f"engine.args.{name}",
                found=value,
                expected="an argument that neither runs code, nor reaches other machines, nor names files; "
                "see docs/security.md",
                next_step=f"write {close[0]}"
                if close
                else "leave it out, or start SGLang yourself with it and measure that server with --endpoint",
            )
        if not _is_plain(value):
            raise InputError(
                "a pair file cannot set an argument of SGLang to this value",
                file=file,
                key=f"engine.args.{name}",
                found=value,
                expected="a number, true, false, a word, or a list of integers",
            )


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    if isinstance(value, list):
        return all(type(item) is int for item in value)
    return isinstance(value, bool | int | float)
