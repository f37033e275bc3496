"""Rules that several kinds share: formats, capacities, declarative validation, changes of fixed members, writers of the status."""
