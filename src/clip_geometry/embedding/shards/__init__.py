"""The items of a shard through an encoder: read ahead, embedded, timed, written."""
