"""click commands -> a request; the one error boundary; nothing else."""
