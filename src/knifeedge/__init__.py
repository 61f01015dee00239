"""knifeedge: models whose answers are yes or no."""
