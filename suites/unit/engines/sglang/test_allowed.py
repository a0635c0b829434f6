"""Which of SGLang's arguments a pair file may set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.commands.prepare import prepare
from harness.engines.sglang.allowed import ALLOWED, require_allowed
from harness.engines.sglang.arguments import server_arguments
from harness.errors import InputError

# By what an untrusted pair file would gain. suites/sglang/test_allowed.py goes through every argument that there is.
REFUSED: dict[str, dict[str, Any]] = {
    "code of the checkpoint": {"trust_remote_code": True, "model_impl": "transformers"},
    "code by its name": {
        "custom_weight_loader": ["evil.load"],
        "forward_hooks": [{"hook_factory": "os:system"}],
        "custom_sigquit_handler": "os:system",
        "enable_custom_logit_processor": True,
        "sidecar": "evil",
        "stat_loggers": {"a": "evil"},
        "radix_cache_backend": "evil",
    },
    "other weights": {
        "load_format": "remote",
        "speculative_draft_load_format": "dummy",
        "model_loader_extra_config": '{"a": 1}',
        "json_model_override_args": '{"auto_map": {"AutoModel": "evil/repository--m.C"}}',
        "revision": "main",
        "speculative_draft_model_revision": "main",
        "lora_paths": ["evil"],
        "tokenizer_path": "/elsewhere",
        "speculative_token_map": "/elsewhere/map.pt",
        "init_expert_location": "/elsewhere/a.pt",
        "quantization_param_path": "/elsewhere/a.json",
        "modelopt_checkpoint_restore_path": "/elsewhere",
        "kt_weight_path": "/elsewhere",
    },
    "other machines": {
        "dist_init_addr": "evil:1",
        "nnodes": 2,
        "node_rank": 1,
        "host": "0.0.0.0",  # noqa: S104 - refused
        "port": 1,
        "encoder_urls": ["http://evil"],
        "otlp_traces_endpoint": "evil:4317",
        "remote_instance_weight_loader_seed_instance_ip": "evil",
        "disaggregation_mode": "prefill",
        "hicache_storage_backend": "mooncake",
        "kv_events_config": "{}",
        "use_ray": True,
    },
    "files written, read or deleted": {
        "delete_ckpt_after_loading": True,
        "download_dir": "/elsewhere",
        "crash_dump_folder": "/elsewhere",
        "debug_tensor_dump_output_folder": "/elsewhere",
        "spec_trace_dir": "/elsewhere",
        "export_metrics_to_file_dir": "/elsewhere",
        "log_requests_target": ["/elsewhere"],
        "modelopt_export_path": "/elsewhere",
        "chat_template": "/elsewhere",
        "decrypted_config_file": "/elsewhere",
        "speculative_adaptive_config": "/elsewhere",
        "file_storage_path": "/elsewhere",
        "enable_profile_cuda_graph": True,
        "config": "/elsewhere",
    },
    "no argument at all": {"": 1, "__class__": 1, "tp-size": 2, "TP_SIZE": 2},
}


@pytest.mark.parametrize(
    ("name", "value"), [pair for arguments in REFUSED.values() for pair in arguments.items()], ids=str
)
def test_what_a_pair_file_cannot_set(name: str, value: object) -> None:
    pair = prepare("tiny").with_engine(name="sglang", args={"tp_size": 1, name: value})
    with pytest.raises(InputError, match="a pair file cannot set this argument of SGLang") as caught:
        server_arguments(pair, running=1, tokens=1)
    assert caught.value.key == f"engine.args.{name}"
    assert caught.value.file == str(pair.file)
    assert caught.value.next_step is not None


@pytest.mark.parametrize(
    "value",
    [
        *("/etc/passwd", "../x", "a/b", "evil.module", "os:system", "http://evil", "{}", "", " triton", "x" * 65),
        *({"a": 1}, ["a"], [1, "a"], [True], [[1]]),
    ],
    ids=str,
)
def test_no_value_names_a_file_an_address_or_a_class(value: object) -> None:
    with pytest.raises(InputError, match="to this value") as caught:
        require_allowed({"attention_backend": value}, Path("a.pair.toml"))
    assert caught.value.key == "engine.args.attention_backend"


def test_sizes_switches_and_words_pass() -> None:
    given = {
        "tp_size": 8,
        "mem_fraction_static": 0.8,
        "disable_radix_cache": True,
        "attention_backend": "trtllm_mha",
        "boundary_reduction": "rs+rsv",
        "quantization": "compressed-tensors",
        "cuda_graph_bs_decode": [1, 2, 4],
    }
    require_allowed(given, Path("a.pair.toml"))
    assert given.keys() <= ALLOWED


def test_a_slip_is_told() -> None:
    with pytest.raises(InputError, match="write mem_fraction_static"):
        require_allowed({"mem_frac_static": 0.8}, Path("a.pair.toml"))
