"""A world made from a seed: a model of ZooKeeper, model brokers, mishaps and checkers.

The handlers that run in it are the live ones. A seed that fails is printed and can be run again.
"""
