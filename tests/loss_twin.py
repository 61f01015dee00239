"""The losses again in float64 numpy, written from the formulas and nothing else."""

import numpy as np


def sigmoid(z):
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1, small) / (1 + small)


def cross_entropy(p, y):
    return -(y * np.log(p) + (1 - y) * np.log(1 - p))


def class_weights(y, balance=1.1):
    share = y.mean()
    return y * (1 - share) + (1 - y) * balance * share


def bce(p, y):
    return cross_entropy(p, y)


def wbce(p, y, balance=1.1):
    return class_weights(y, balance) * cross_entropy(p, y)


def swbce(p, y, balance=1.1):
    return (class_weights(y, balance) + class_weights(p, balance)) / 2 * cross_entropy(p, y)


def ebt(p, y, radius=7, factors=(1.0, 0.8, 0.5)):
    near = np.zeros_like(y)
    *_, height, width = y.shape
    for index in np.argwhere(y > 0):
        *image, row, column = index
        rows = slice(max(row - radius, 0), min(row + radius + 1, height))
        columns = slice(max(column - radius, 0), min(column + radius + 1, width))
        near[(*image, rows, columns)] = 1
    classes = (y, near - y, 1 - near)
    weight = sum((1 - c.mean()) * f * c for c, f in zip(classes, factors, strict=True))
    return weight * cross_entropy(p, y)


def focal(p, y, gamma=2.0, alpha=0.25):
    right = y * p + (1 - y) * (1 - p)
    return (alpha * y + (1 - alpha) * (1 - y)) * (1 - right) ** gamma * cross_entropy(p, y)


def adjuster(p, y, threshold=0.7, window=0.2, decay=16.0):
    distance = (p - threshold) * y + (threshold - p) * (1 - y)
    inside = (np.exp(decay * distance) - np.exp(decay * window)) / (1 - np.exp(decay * window))
    return np.where(distance < 0, 1.0, np.where(distance > window, 0.0, inside))


def adjusted(base, threshold=0.7, window=0.2, decay=16.0, delta=1.0):
    return lambda p, y: (adjuster(p, y, threshold, window, decay) + delta) * base(p, y)


def gradient(loss, x, y, step=1e-6):
    """Central differences of the mean loss, one element at a time."""
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        result[index] = (loss(up, y).mean() - loss(down, y).mean()) / (2 * step)
    return result
