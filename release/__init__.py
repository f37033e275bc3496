"""Make the files of a release from a clean checkout: `make release VERSION=0.2.0`. docs/releasing.md says how to use them."""
