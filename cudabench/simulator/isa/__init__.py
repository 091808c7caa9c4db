"""What each PTX instruction does."""
