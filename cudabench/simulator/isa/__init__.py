"""What each PTX instruction does on the NumPy engine: one builder for each opcode and type."""
