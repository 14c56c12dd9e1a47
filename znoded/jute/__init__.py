"""The wire codec: primitives, records, operation codes, error codes. Bytes in, values out."""
