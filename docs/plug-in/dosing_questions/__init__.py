"""Questions about doses from a file of one's own: a task of eval-factory in a package of its own."""
