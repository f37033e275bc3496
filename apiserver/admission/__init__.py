"""May this change happen, and as what?"""
