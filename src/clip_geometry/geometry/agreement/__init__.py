"""Whether two spaces agree about the same items: similarities, neighbors, ranks, information."""
