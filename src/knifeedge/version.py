"""The version, which the package is built with and files are marked with."""

VERSION = "0.2.0"
