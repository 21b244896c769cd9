"""The page of one result or several: one file that needs nothing else, with every instance in it
(`document.py`).
"""
