"""Forms of convolutions and products by class of devices; those of `cpu` were measured on AVX-512."""
