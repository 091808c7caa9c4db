"""The line that an error suggests where arguments are missing: a launch, sizes and arrays, by the kernel's file."""
