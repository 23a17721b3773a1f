"""Numbers that InstInfer states as results, and that a model here takes as an input, or a picture shows."""

from __future__ import annotations

from kvdrive.study.stated import Stated

KV_SAVED = Stated("INST-16", 88.1, "%", "time that one drive saves of FlexGen's access to K and V")
FLEXGEN_SHARE = Stated("INST-05", 98.94, "%", "access to K and V in a step of FlexGen from SSD, batch 64")
DENSE_SHARE = Stated("INST-07", 80.7, "%", "access to K and V in a step of one drive, dense, batch 64")
DENSE_SHARE_LARGE = Stated("INST-09", 93.6, "%", "the same with batch 256")
SECOND_SSD = Stated("INST-13", 1.0, "times", "FlexGen's throughput with two SSDs over one")
DEEPSPEED_GAIN = Stated("INST-08", 4.6, "% more", "one drive at batch 256 over DeepSpeed at batch 16")
DEEPSPEED_FALL = Stated("INST-04", 32.6, "times", "DeepSpeed at batch 16 over batch 32")
