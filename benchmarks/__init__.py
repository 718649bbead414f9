"""Speed and quality beside other tools; each module prints one table and says how it was measured."""
