"""What all integrations share: the recorder, merging, passages and the trace context."""
