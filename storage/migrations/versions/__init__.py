"""One module a version; each knows only its own step."""
