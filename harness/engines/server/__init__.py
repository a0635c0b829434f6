"""A running server as an engine, over HTTP: SGLang request by request, vLLM by its sums."""
