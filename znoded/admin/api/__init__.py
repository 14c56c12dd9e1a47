"""The native API: sessions, transactions, locks, elections and watches over HTTP/JSON. docs/api.md describes it."""
