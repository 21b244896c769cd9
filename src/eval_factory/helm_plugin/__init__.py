"""Code that runs INSIDE helm-run, and that nobody outside imports: the client, the runner, annotators, guards, patches."""
