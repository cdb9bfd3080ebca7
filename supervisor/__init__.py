"""Who lives: child specs, exit reasons, restart windows, the supervisor core, the base actor and its mail."""
