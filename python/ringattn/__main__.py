"""python -m ringattn: what `ringattn info` prints."""
from .info import text

print(text())
