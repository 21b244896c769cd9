"""Patches of HELM against defects, slowness and missing optional packages.

The patches change HELM's code only in the memory of helm-run; no file of HELM is edited.
"""
