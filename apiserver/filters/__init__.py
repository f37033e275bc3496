"""Every request passes here: one aiohttp middleware each."""
