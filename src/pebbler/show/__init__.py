"""Plans for people: the report page, plots, drawings, tables."""
