"""What CUDA promises: streams, ordering, machines and schedules. Imports nothing else of gapless and needs no GPU."""
