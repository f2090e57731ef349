"""The authorizers that come with nsqtw: who may publish, subscribe and administrate."""
