"""One kernel on a card, with the names of the vendor's module pyxrt: the largest 8 of 1000 keys.

python examples/card.py argtopk.xclbin        # built by: make link KERNEL=argtopk PLATFORM=smartssd
"""

import sys

import numpy as np

from kvdrive.xrt.single import provider

xrt = provider()  # the vendor's pyxrt, or kvdrive's module of the same names over this machine's XRT
keys = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
wanted = 8

device = xrt.device(0)
kernel = xrt.kernel(device, device.load_xclbin(sys.argv[1]), "argtopk", xrt.kernel.cu_access_mode.shared)
to_card, to_host = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE
sizes = (4096, 65536, 128)  # the keys in whole words of 64 bytes, room for the most indices, a bitmap of the keys
source, indices, bitmap = (
    xrt.bo(device, size, xrt.bo.flags.normal, kernel.group_id(i)) for i, size in enumerate(sizes)
)
source.write(keys.tobytes(), 0)
source.sync(to_card)

run = kernel(source, indices, bitmap, keys.size, wanted, 0)  # 0: the keys are binary32
run.wait(10_000)
indices.sync(to_host)
found = np.frombuffer(indices.read(4 * wanted, 0), np.uint32)
print("the card's choice:", *found)
print("as numpy chooses:", np.array_equal(found, np.sort(np.argsort(-keys, kind="stable")[:wanted])))
