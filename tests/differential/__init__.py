"""Random graphs, run by the session and by two oracles."""
