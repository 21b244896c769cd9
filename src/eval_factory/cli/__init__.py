"""The command line: click commands that translate options into requests, and report errors."""
