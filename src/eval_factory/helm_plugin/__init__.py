"""Code that runs INSIDE helm-run: the client, the runner, annotators, guards and patches.

Only helm-run imports this package; the command line of eval-factory does not.
"""
