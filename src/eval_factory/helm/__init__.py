"""All knowledge about HELM: its file names, JSON keys, run entries and tags.

No module of this package imports HELM. An upgrade of HELM changes only this package and
`helm_plugin/`, which runs inside helm-run.
"""
