"""Apps over zofed: run a study, replay it, redo the papers' figures."""
