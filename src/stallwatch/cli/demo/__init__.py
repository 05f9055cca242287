"""``stallwatch demo``: the incident, bare and guarded, side by side."""
