"""Results as a person reads them. Pure functions: nothing here prints or decides."""
