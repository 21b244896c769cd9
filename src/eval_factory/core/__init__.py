"""The base package, which all other packages import: errors, redaction of secrets, paths of the
output folder, records of results, logs, YAML files.
"""
