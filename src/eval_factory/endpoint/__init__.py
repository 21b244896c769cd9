"""An OpenAI-compatible endpoint's client that knows nothing of HELM: requests and answers, retries, sign-in, limits, cache."""
