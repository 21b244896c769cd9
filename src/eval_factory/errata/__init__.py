"""Known defects of HELM's benchmarks: what is wrong, who said so, and the corrected value beside HELM's own."""
