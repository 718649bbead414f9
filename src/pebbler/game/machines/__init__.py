"""The built-in machines, as TOML files."""
