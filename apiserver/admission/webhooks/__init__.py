"""Admission webhooks: what they are asked, how they are reached, and what their answers mean."""
