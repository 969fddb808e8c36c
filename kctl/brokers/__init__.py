"""The broker adapter: wire codecs by version, connections, channels and simulated brokers.

A channel carries the controller's requests to one broker, in order, one in flight, and turns its
answers into events.
"""
