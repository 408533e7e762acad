"""The secret: keys, their derivation, their files."""

from .binding import Binding
from .hash_rules import HashRule, KeyedRule, RarestRule, SecondRule, SentenceTokens, TokenRule, register_hash_rule
from .key import KeyOptions, WatermarkKey
from .merkle import Declaration, UserProof, verify_proof
from .ring import KeyRing
from .rounds import Round
from .seasoning import Terms
from .settings import MarkSettings
from .unseasoned import UnseasonedKey

__all__ = [
    "Binding",
    "Declaration",
    "HashRule",
    "KeyOptions",
    "KeyRing",
    "KeyedRule",
    "MarkSettings",
    "RarestRule",
    "Round",
    "SecondRule",
    "SentenceTokens",
    "Terms",
    "TokenRule",
    "UnseasonedKey",
    "UserProof",
    "WatermarkKey",
    "register_hash_rule",
    "verify_proof",
]
