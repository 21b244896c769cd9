"""Works on finished results: comparisons, gates, results of suites, papers and raters' sheets."""
