"""Channels that lead nowhere: they remember what brokers would have been told."""

from collections import deque

from kctl.messages.requests import Dispatch

REMEMBERED = 10_000


class RecordingChannels:
    """For a controller that has no brokers to reach, and for tests that look at its requests."""

    def __init__(self) -> None:
        self.sent: deque[Dispatch] = deque(maxlen=REMEMBERED)
        self.count = 0

    def send(self, dispatch: Dispatch) -> None:
        self.sent.append(dispatch)
        self.count += 1
