"""Tools of a small warehouse: an example of a package that brings tools to Callboard."""
