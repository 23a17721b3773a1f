"""Cards that the vendor's runtime (XRT) drives: images, SmartSSDs and what they need."""
