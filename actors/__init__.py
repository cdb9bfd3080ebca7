"""What the system does: client, turn machine, directory, models, catalogue, tool workers, external servers, journal."""
