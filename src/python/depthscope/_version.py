"""The version, in one place: pyproject.toml, the wheel and the head of each log read it here."""
__version__ = "1.0"
