"""What a stranger may use up: everything that comes from outside has a bound."""

import attrs

KIB = 1024
MIB = 1024 * KIB


@attrs.frozen
class Limits:
    first_frame_bytes_max: int = 512 * KIB
    """Until a connection has asked for ApiVersions (and authenticated, where that is asked for)."""
    frame_bytes_max: int = 100 * MIB
    """Afterwards: the brokers' own default. Holds for answers of brokers too."""
    large_frame_bytes: int = MIB
    """Frames above this size share a budget; all others may always be read."""
    large_frames_bytes_max: int = 256 * MIB
    connections_max: int = 2_000
    connections_per_address_max: int = 500
    first_frame_s: float = 30.0
    """From the connection to its first whole request; between those of somebody unknown."""
    idle_s: float = 600.0
    """Between two requests, as `connections.max.idle.ms`."""
    frame_s: float = 30.0
    """From the length of a frame to its last byte, and for an answer to be taken."""
    handshake_s: float = 10.0
    ask_s: float = 30.0
    """For the controller itself to answer, unless the request allows more."""
    wait_s: float = 600.0
    """For the controller and for the brokers, however much a request allows."""
    connect_s: float = 5.0
    """For a connection to a broker."""
    relay_s: float = 60.0
    """For a broker's answer to a request that was relayed."""
    versions_s: float = 1.0
    """For brokers to say which versions they speak, while somebody waits for our ApiVersions."""
    partitions_per_topic_max: int = 200_000
    """No topic's znode could hold more; looked at before any of them is placed."""
    partitions_per_request_max: int = 1_000_000
    topics_per_request_max: int = 10_000
    """Made or grown by one request."""
