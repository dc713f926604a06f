"""What happened: one Timeline type for measured and simulated runs, its readers, writers and measures."""
