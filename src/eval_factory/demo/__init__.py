"""The embedded endpoint and the sample benchmark of the quickstart."""
