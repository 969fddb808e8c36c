"""A Kafka cluster for tests, with the controller in it, and the pytest plugin."""
