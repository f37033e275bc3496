"""One resource in memory at every revision of a window, and who watches it. Pure: it neither reads nor writes a store."""
