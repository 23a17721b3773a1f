"""K and V that outlive the request and the process: an index finds what the drives hold of a prompt."""
