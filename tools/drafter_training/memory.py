"""The heap is told to keep what it has (train_drafter.py), so holes between blocks of varying size add up over a long run."""
import ctypes


def give_back():
    """Returns the heap's unused pages to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
