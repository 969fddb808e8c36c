"""The endpoint that brokers and clients call while this controller is the active one.

It answers the controller's own RPCs through the actor and relays every other request to a broker.

- `server`: listeners and who may connect; `connection`: one client, its requests in order;
- `frames`, `limits`: what comes in, within bounds; `sasl`, `rights`: from whom, and who may;
- `routing`: who answers what; `versions`: what is offered; `own_answers`: what every node is asked;
- `broker_calls`, `topic_calls`, `partition_calls`, `cluster_calls`: the controller's RPCs;
- `access`, `waiting`: the controller behind it, and waiting for the brokers;
- `relay`: everything else.
"""
