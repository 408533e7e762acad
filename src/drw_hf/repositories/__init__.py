"""Talking to the Hub: requests whose errors say what to do, and the history of a repository."""
