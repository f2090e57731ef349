"""Engines of the policies of topics and channels."""
