"""Programs for several devices: where arrays are placed, and what each device computes."""
