"""The host's side of NVMe over Fabrics: reaching a drive that another machine serves over NVMe/TCP."""
