"""Long runs of many jobs: a line of JSON as each ends, shared by processes, and resumed where they stopped."""
