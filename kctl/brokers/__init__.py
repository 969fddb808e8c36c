"""The broker adapter: connections, channels and simulated brokers.

A channel carries the controller's requests to one incarnation of a broker, in order, one in
flight, and turns its answers into events. What goes over the wire is described in `kctl.wire`.
"""
