"""Who leaked: whose mark a suspect carries, among the many users of a key ring."""

from .identification import Identification, UserFinding
from .search import identify

__all__ = ["Identification", "UserFinding", "identify"]
