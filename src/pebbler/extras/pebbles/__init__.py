"""Pebble games of two levels with up to 62 unit ops, searched to a proof."""
