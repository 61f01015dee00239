"""Pixel losses."""
