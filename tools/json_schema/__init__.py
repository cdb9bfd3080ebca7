"""A JSON value against a JSON Schema, with counted work (``check.problems_of``); nothing outside it is ever fetched."""
