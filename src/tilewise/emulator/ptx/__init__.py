"""PTX text → a module, as plain data."""
