"""The paper's own figures, to set beside what was measured."""

from . import read_table

PAPER = read_table("paper")
PAPER_EPSILON = 0.2
PAPER_STUDENTS = 10  # of every kind
