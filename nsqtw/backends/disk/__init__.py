"""The backend `disk`: log files."""
