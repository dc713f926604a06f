"""For other people's tests: conformance of devices."""
