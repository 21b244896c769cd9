"""Patches of HELM, inside helm-run and in memory only: defects, slowness, optional packages."""
