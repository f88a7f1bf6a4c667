"""Explanations of a launch: a verdict in text, figures, and a page that needs no network."""
