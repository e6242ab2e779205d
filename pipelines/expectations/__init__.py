"""Great Expectations: suites and how they are run on days."""
