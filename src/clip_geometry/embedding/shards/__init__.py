"""The items of a shard: read, embedded, timed."""
