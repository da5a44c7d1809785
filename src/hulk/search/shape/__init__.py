"""How each job stands on its machines: pipelines arranged anew, and polished side by side."""
