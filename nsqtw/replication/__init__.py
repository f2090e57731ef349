"""Replication: a copy of everything durable in a store, from which another broker takes over."""
