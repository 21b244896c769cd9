"""Code that runs INSIDE helm-run: the endpoint client, the response cache, the runner, what mends HELM at run time."""
