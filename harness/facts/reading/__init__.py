"""Reading an engine's own source: syntax trees, setters run on stand-ins, capture loops; no import of the engine."""
