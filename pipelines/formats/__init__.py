"""Value formats: how the bytes of a value become the JSON text that is decoded, one module for each."""
