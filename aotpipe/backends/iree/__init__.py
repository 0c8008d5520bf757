"""IREE: importer and compiler for a host that builds, runtime for one that serves."""
