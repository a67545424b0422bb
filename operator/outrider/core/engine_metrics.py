"""Names of the metrics that engines export: the one place where they are spelt.

vLLM renames metrics between versions; a reader tries the names of an entry in order and takes the first one that an
engine has (never two of them added up). Sources: vLLM 0.6.3 to 0.33.0, as published; names carry the ``_total`` that
the Prometheus client adds.
"""

from __future__ import annotations

NUM_DRAFTS = ("vllm:spec_decode_num_drafts_total",)
NUM_DRAFT_TOKENS = ("vllm:spec_decode_num_draft_tokens_total",)
NUM_ACCEPTED_TOKENS = ("vllm:spec_decode_num_accepted_tokens_total",)
NUM_ACCEPTED_TOKENS_PER_POS = ("vllm:spec_decode_num_accepted_tokens_per_pos_total",)
"""Label ``position``, counted from 0: drafts of which the first position + 1 tokens were accepted."""
GENERATION_TOKENS = ("vllm:generation_tokens_total",)
PROMPT_TOKENS = ("vllm:prompt_tokens_total",)
NUM_PREEMPTIONS = ("vllm:num_preemptions_total",)
NUM_REQUESTS_RUNNING = ("vllm:num_requests_running",)
NUM_REQUESTS_WAITING = ("vllm:num_requests_waiting",)
KV_CACHE_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""A fraction, 0 to 1, in spite of the name."""
CACHE_CONFIG = ("vllm:cache_config_info",)
"""Value 1; labels ``num_gpu_blocks`` and ``block_size`` give the size of the KV cache."""
TPOT = ("vllm:request_time_per_output_token_seconds",)
"""A request's decode time over its tokens. Before 0.11 there was only ``vllm:time_per_output_token_seconds``, an entry
each engine output: under speculation that is the time of a step, and it is not read as TPOT."""
TTFT = ("vllm:time_to_first_token_seconds",)
FINISHED = ("vllm:request_success_total",)
"""Label ``finished_reason``: ``stop``, ``length``, ``abort``, since 0.20 ``error`` and ``repetition`` too. A request
whose client hung up is in none of them."""
ANSWER_TOKENS = ("vllm:request_generation_tokens",)
"""A histogram of output tokens by request, of the same requests; the lowest bound is 1."""
HTTP_REQUESTS = ("http_requests_total",)
"""Of the API server, without label ``engine``; labels ``handler``, ``method`` and ``status`` (``2xx``, ``5xx``)."""
E2E_LATENCY = ("vllm:e2e_request_latency_seconds",)
QUEUE_TIME = ("vllm:request_queue_time_seconds",)
ITERATION_TOKENS = ("vllm:iteration_tokens_total",)
"""A histogram, in spite of its name; its ``_count`` counts engine steps."""
PROCESS_START = ("process_start_time_seconds",)
"""Of the process that is scraped, without label ``engine``."""
CREATED = ("vllm:generation_tokens_created",)
"""When the engine's counters began, Unix time: one stands for all of an engine, and tells of a restart behind an HTTP
server that went on. The first engine of vLLM and servers of several processes do not have it."""

# From our runtime plugin. Label ``engine`` is the data-parallel rank, as in vLLM.
DRAFT_TOKENS_PER_POS = ("outrider_engine_draft_tokens_per_pos_total",)
"""Label ``position`` from 0: drafts that proposed at least position + 1 tokens, the right denominator of acceptance."""
STEPS = ("outrider_engine_steps_total",)
STEP_SECONDS = ("outrider_engine_step_seconds_total",)
STEP_SECONDS_SQUARED = ("outrider_engine_step_seconds_squared_total",)
STEP_REQUESTS = ("outrider_engine_step_requests_total",)
"""These four share the labels ``batch`` (upper bound of the bucket, a power of two), ``speculative_tokens`` and
``kind`` (``decode``, or ``mixed`` when the step also ran prefill); ``STEP_REQUESTS`` sums the requests of the steps."""
SCHEDULE_GENERATION = ("outrider_engine_schedule_generation",)
SCHEDULE_INITIAL = ("outrider_engine_schedule_initial",)
"""1 while the engine runs its initial schedule: none was delivered yet, or the lease ran out."""
SCHEDULE_LEASE_SECONDS = ("outrider_engine_schedule_lease_seconds",)
CONTROLLABLE = ("outrider_engine_controllable",)
LONGEST_STEP_SECONDS = ("outrider_engine_longest_step_seconds",)
STALLS = ("outrider_engine_stalls_total",)
STALL_SECONDS = ("outrider_engine_stall_seconds_total",)
SECONDS_SINCE_TOKEN = ("outrider_engine_seconds_since_token",)
