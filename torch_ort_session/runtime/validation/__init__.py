"""Bad data on a device is noted in one word and told once."""
