"""The version of the program and of this package, in one place: the Makefile and the wheel read it here, too."""
__version__ = "1.1.0"
