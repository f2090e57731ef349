"""The error that ends the demo, with one line for the user."""


class DemoError(Exception):
    """The demo cannot go on."""
