"""kvdrive inside other frameworks."""
