"""Presentation of plans: the report page, plots, drawings and tables."""
