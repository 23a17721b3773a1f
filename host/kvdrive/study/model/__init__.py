"""A decode step as discrete events, drives' own device times, power and money."""
