"""What is mended in HELM, inside helm-run and in memory only: defects, slowness, what is not installed."""
