"""Sign-in and rights: who is asking, and may they."""
