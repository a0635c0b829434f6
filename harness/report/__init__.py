"""Results as a person reads them and as `--json` prints them. Pure functions: nothing here prints or decides."""
