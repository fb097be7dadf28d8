"""The distributions that a release would upload."""
