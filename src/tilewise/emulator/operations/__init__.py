"""What is known of each operation of PTX: one row an operation, read by everything that takes instructions apart."""
