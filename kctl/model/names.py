"""Names of things: brokers, topics, partitions, and the ids that Kafka gives to topics."""

import base64
from typing import NamedTuple

BrokerId = int

NO_LEADER: BrokerId = -1
"""`leader` in a partition state that has none."""

TopicId = str
"""URL-safe base64 of 16 bytes without padding, as Kafka writes it into `/brokers/topics/<t>`."""

ID_BITS = 128


class TopicPartition(NamedTuple):
    """One partition. Printed as Kafka prints it: `orders-17`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        topic, dash, partition = text.rpartition("-")
        if not dash or not topic or not partition.isdecimal():
            raise ValueError(f"{text!r} is not TOPIC-PARTITION, for example orders-17")
        return cls(topic, int(partition))


def topic_id_from_bits(bits: int) -> TopicId | None:
    """A type-4 UUID out of 128 random bits, or None for the few that Kafka never hands out."""
    raw = bytearray(bits.to_bytes(16, "big"))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    text = base64.urlsafe_b64encode(bytes(raw)).decode("ascii").rstrip("=")
    # A leading dash would be read as an option by command line tools; Kafka skips those ids too.
    return None if text.startswith("-") else text


def topic_id_to_bytes(topic_id: TopicId) -> bytes:
    raw = base64.urlsafe_b64decode(topic_id + "==")
    if len(raw) != 16:
        raise ValueError(f"topic id {topic_id!r} is not 16 bytes in URL-safe base64")
    return raw
