"""The client of an OpenAI-compatible endpoint: requests, retries, sign-in, limits and the cache.

No module of this package imports HELM.
"""
