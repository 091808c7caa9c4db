"""From PTX text to a program that can be launched: the parser, the translation to operations, and their records."""
