"""Results -> drawings (`result_plots.py`), which are written as SVG (`svg_plot.py`) and as PNG (`png_plot.py`)."""
