"""Contains the embedded demo endpoint and the sample benchmark of the quickstart."""
