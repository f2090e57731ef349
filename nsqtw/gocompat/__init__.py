"""Texts and values as Go prints and reads them."""
