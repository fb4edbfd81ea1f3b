"""The ASGI application: wires api, web and the loops to the parts; nothing else."""
