"""How a term ends from outside: no reply tells it, the driver closes the handler."""


class TermOver(Exception):
    """This controllership is over. Nothing that is left of it may take effect."""


class ControllerMoved(TermOver):
    """A write was refused because `/controller_epoch` has another version: somebody else rules."""


class SessionLost(TermOver):
    """The ZooKeeper session expired, or cannot be trusted any longer."""
