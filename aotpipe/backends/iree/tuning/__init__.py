"""Forms of convolutions by class of devices; those of `cpu` were measured on AVX-512."""
