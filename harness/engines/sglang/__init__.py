"""The real SGLang as an engine: started in a process tree of its own, asked over pipes, watched by its own hooks."""
