// Nothing: a target needs a source to precompile the headers of all tests for.
