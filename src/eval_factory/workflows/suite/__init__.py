"""Many evaluations of many targets: one command, one table."""
