"""`sluice doctor`: ask an installation everything that can be wrong with it, and name each finding with the command that mends it.

`examination` runs the checks of `checks/`; each yields findings (`findings`), whose codes are in one catalogue (`codes`). `report` prints
them. `installation` is what the checks ask: the cluster, the server itself, the store.
"""
