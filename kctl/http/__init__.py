"""The controller's HTTP face: page, metrics, health, state and events."""
