"""eval-factory: measures how good language models are at medical work, on top of upstream HELM."""

__version__ = "0.1.0"
