"""What can be run: the tasks of `framework.yml`, HELM's run specs and run entries, known errata, custom benchmarks, users' data."""
