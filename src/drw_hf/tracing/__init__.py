"""Who leaked: whose mark a suspect carries, among the many users of a key ring."""

from .identification import Identification, UserFinding
from .logs import LoggedIdentification, identify_by_log
from .search import identify

__all__ = ["Identification", "LoggedIdentification", "UserFinding", "identify", "identify_by_log"]
