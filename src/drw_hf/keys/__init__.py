"""The secret: keys, their derivation, their files."""

from .hash_rules import HashRule, KeyedRule, RarestRule, SecondRule, SentenceTokens, TokenRule, register_hash_rule
from .key import WatermarkKey

__all__ = [
    "HashRule",
    "KeyedRule",
    "RarestRule",
    "SecondRule",
    "SentenceTokens",
    "TokenRule",
    "WatermarkKey",
    "register_hash_rule",
]
