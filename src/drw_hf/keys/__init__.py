"""The secret: keys, their derivation, their files."""

from .hash_rules import HashRule, KeyedRule, RarestRule, SecondRule, SentenceTokens, TokenRule, register_hash_rule
from .key import WatermarkKey
from .merkle import UserProof, verify_proof
from .ring import Declaration, KeyRing
from .settings import MarkSettings

__all__ = [
    "Declaration",
    "HashRule",
    "KeyRing",
    "KeyedRule",
    "MarkSettings",
    "RarestRule",
    "SecondRule",
    "SentenceTokens",
    "TokenRule",
    "UserProof",
    "WatermarkKey",
    "register_hash_rule",
    "verify_proof",
]
