"""Readers of the core: explain, plan, shadow and replay.

They ask the code that decides, on a copy of the state, instead of repeating its rules.
"""
