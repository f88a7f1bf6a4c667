"""The panels of an explanation, each a question: a function makes it of a launch, or None where it has no answer."""
