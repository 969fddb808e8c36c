"""Values and state: names, brokers, assignments, rows, the state tables and the cluster state.

Everything here is a plain value or a container of values. Nothing in it waits, asks the time or
talks to anyone, and every other layer may import it.
"""
