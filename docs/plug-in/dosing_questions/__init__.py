"""Questions about doses from a user's file: a task of eval-factory in a package of its own."""
