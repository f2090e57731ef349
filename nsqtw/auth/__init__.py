"""The authorizers that come with nsqtw: permissions to publish, subscribe and administrate."""
