"""Writes the page of one result or of several.

A page is one HTML file with all instances, which loads no other file. The entry points are in
`document.py`.
"""
