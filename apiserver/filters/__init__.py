"""The filters that every request passes: one aiohttp middleware each."""
