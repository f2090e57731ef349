"""Storage: `IBackendQueue` implementations, and the positions of all cursors."""
