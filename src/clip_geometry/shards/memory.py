"""Whether memory ran out, of whatever device."""

import torch


def is_out_of_memory(error: Exception) -> bool:
    """torch has a class for CUDA only; on the CPU and on Apple's GPUs the message tells."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(sign in str(error) for sign in ("not enough memory", "can't allocate memory", "out of memory"))
