"""A picture of the dashboards without Grafana, which cannot be run where this project is tested.

The panels of the committed JSON are drawn with the data of a real Prometheus, by a small drawing of our own: enough to
see that a panel has data, a sensible unit, a legend that fits and a place. It is not Grafana, and every page says so:
colours, ticks, fonts and whatever a panel can be asked on hovering are different there.

``asking`` gets the data, ``units`` writes numbers, ``curves`` and ``cells`` draw, ``sheets`` writes numbers and tables,
``page`` puts panels on the grid, ``photograph`` has a headless Chromium take the picture.
"""
