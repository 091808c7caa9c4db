"""What a kernel must not do: races, accesses out of bounds, reads of unwritten memory."""
