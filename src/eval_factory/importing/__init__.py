"""Imports results of other programs: a reader for each format, and a writer of result folders."""
