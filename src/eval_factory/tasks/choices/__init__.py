"""Published multiple-choice benchmarks that HELM has no scenario for: their files, read into one form."""
