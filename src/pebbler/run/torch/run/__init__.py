"""Running a plan in place of the step."""
