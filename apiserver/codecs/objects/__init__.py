"""Objects between text and storage: decoding, defaults, conversion, the stored form."""
