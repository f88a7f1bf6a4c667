"""Numbers as a GPU adds, multiplies and rounds them."""
