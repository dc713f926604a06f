"""Make it overlap: chunked work (copy in, kernel, copy out) at the limit of the link."""
