"""The replica store in PostgreSQL, with psycopg 3."""
