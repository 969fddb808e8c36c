"""Kafka's wire format: messages by version, headers, frames, and the controller's own requests.

The adapters share it: channels encode requests and decode answers, the server does the reverse,
simulated brokers do both. It does no I/O and knows nothing of any of them.

- `schema`: how a message is written down as a class, field by field, with its versions;
- `compiler`: makes an encoder and a decoder out of such a class for one version;
- `control_plane`, `admin`, `client`: the messages;
- `apis`: keys, version ranges, headers and frames;
- `requests`: the quick way from `kctl.messages.requests` to bytes, for the three hot requests.
"""
