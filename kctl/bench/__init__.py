"""Large clusters made from a seed, and the scenarios in which the controller is measured on them."""
