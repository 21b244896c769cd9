"""Results of other programs as ordinary result folders: one reader a format, one writer."""
