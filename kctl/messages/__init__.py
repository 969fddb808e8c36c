"""What goes in and out of the core: events, effects, replies, requests and the outbox.

All of them are frozen values. The driver that feeds replies to a waiting handler lives here too;
it does no I/O, so the live controller, the simulator and a replay share it.
"""
