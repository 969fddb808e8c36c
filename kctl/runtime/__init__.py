"""The live shell around the core: actor, queue, timers, journal, faults, metrics, campaign.

It owns the clock and the event loop, runs one procedure at a time and decides what a failure means.
"""
