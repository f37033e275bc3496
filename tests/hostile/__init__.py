"""Hostile requests, drawn from a seed, against a server that is held to the budget of one request.

`generator` draws them, `custom` those for custom resources, `campaign` sends them and judges, `make hostile` does that for minutes
(`ARGS="--seed 1 --connections 4 --family json"`), `test_hostile.py` for half a minute with the same requests each time.
A breach names the seed's family and the number of the request in it.
"""
