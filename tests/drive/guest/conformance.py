"""Runs in the guest: all checks of the command set through /dev/ngXnY. Prints what the test compares."""

from kvdrive.conformance import suite
from kvdrive.conformance.device import open_address
from kvdrive.nvme.fabrics.association import RemoteOptions

report = suite.run(open_address("nvme:/dev/ng0n3", RemoteOptions(), destroy=True))
for name, outcomes in report.outcomes.items():
    for one in outcomes:
        if one.state == "failed":
            print("@@ failed", name, one.sentence, one.reason, flush=True)
print("@@ counts", report.count("passed"), report.count("failed"), report.count("skipped"), flush=True)
for reason in sorted(
    {one.reason for outcomes in report.outcomes.values() for one in outcomes if one.state == "skipped"}
):
    print("@@ skipped:", reason, flush=True)
