"""The client of an OpenAI-compatible endpoint; knows nothing of HELM: messages, retries,
sign-in, limits, the cache.
"""
