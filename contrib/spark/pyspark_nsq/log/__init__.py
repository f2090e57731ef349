"""Reading of a topic's log of nsqtw by position."""
