"""What is patched in HELM, inside helm-run and in memory only: defects, slowness, optional
packages.
"""
