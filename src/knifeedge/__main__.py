"""`python -m knifeedge` is the command `knifeedge`."""

from knifeedge.cli import main

if __name__ == "__main__":
    main()
