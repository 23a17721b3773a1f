"""The server, measured from outside: beside other servers, its own layers, an agent's loop."""
