"""The papers' claims, each beside our own value: `kvdrive ledger`."""
