"""The ZooKeeper adapter: wire codec, session, batches, znode codecs, store and watches.

The store turns effects into requests and replies; the watches turn changes into events. The session
is our own: see docs/decisions/0003-own-zookeeper-session.md.
"""
