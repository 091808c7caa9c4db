"""PTX as text, parsed, lowered to operations, and loaded as a program."""
