"""Code that runs INSIDE helm-run, imported by nobody else: the client, the runner, annotators,
guards, patches.
"""
