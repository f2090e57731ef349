"""Options of the daemons: what there are, where their values come from, and how they are shown."""
