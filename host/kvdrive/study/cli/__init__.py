"""Commands of the study: ledger, figures, replay."""
