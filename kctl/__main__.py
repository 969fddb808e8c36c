"""`python -m kctl` is the same program as `kctl`."""

from kctl.cli import main

main()
