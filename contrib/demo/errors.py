"""The demo's one error: something that ends it, with a line for the one who watches."""


class DemoError(Exception):
    """The demo cannot go on."""
