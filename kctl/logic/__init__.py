"""The core: Kafka's rules, one file for each, as handlers that await effects.

A handler takes the cluster state, an event and an outbox. It reads, decides and writes in the order
in which Kafka does, and a rule is found under its own name. No I/O, no clock, no chance: the same
state, event and replies always give the same result.
"""
