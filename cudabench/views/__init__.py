"""What users see. The only package that imports rich, and only when something is shown."""
