"""The endpoint that brokers and clients call while this controller is the active one.

It answers the controller's own RPCs through the actor and relays every other request to a broker.
"""
