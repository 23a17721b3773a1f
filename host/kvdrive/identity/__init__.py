"""What makes two caches the same: a hash of everything that K and V depend on besides the tokens (docs/runtime.md)."""
