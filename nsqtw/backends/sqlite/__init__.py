"""The backend `sqlite`: one database."""
