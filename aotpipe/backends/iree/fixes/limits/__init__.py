"""What a compiler cannot do and aotpipe does nothing about: without an `apply`, the build refuses it."""
